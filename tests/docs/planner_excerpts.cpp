#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>

#include "plans/document.h"
#include "plans/error.h"
#include "plans/job_reader.h"
#include "plans/presets.h"
#include "tests/docs/excerpts.h"

namespace {

using namespace shardplan;

/// The document with every block "```text NAME" holding the excerpt of that name. Throws InputError
/// when one is not known.
std::string renewed(const std::string& text, const std::map<std::string, std::string>& excerpts) {
  constexpr std::string_view kOpen = "```text ";
  constexpr std::string_view kClose = "\n```";
  std::string result;
  std::size_t done = 0;
  for (std::size_t open = text.find(kOpen); open != text.npos; open = text.find(kOpen, done)) {
    const std::size_t line_end = text.find('\n', open);
    const std::string name = text.substr(open + kOpen.size(), line_end - open - kOpen.size());
    const auto excerpt = excerpts.find(name);
    if (excerpt == excerpts.end()) throw InputError(fmt::format("there is no excerpt '{}'", name));
    const std::size_t close = text.find(kClose, line_end);
    if (close == text.npos) throw InputError(fmt::format("the excerpt '{}' has no end", name));
    result += text.substr(done, line_end + 1 - done) + excerpt->second;
    done = close + 1;
  }
  return result + text.substr(done);
}

int run(const std::string& mode, const std::string& path, const std::string& job) {
  const Hardware hardware = Hardware::read(data_folder());
  const std::string text = read_text(path);
  const std::string now =
      renewed(text, docs::excerpts(docs::run_passes(read_job(job, hardware, {}))));
  if (now == text) return 0;
  if (mode == "--check") {
    fmt::print(
        "{} is not what the planner does now; `cmake --build . --target update_docs` renews "
        "it\n",
        path);
    return 1;
  }
  std::ofstream(path, std::ios::binary) << now;
  fmt::print("rewrote {}\n", path);
  return 0;
}

}  // namespace

/// planner_excerpts --check|--update DOCUMENT JOB: holds the excerpts of a document against the
/// plan of a job, or renews them.
int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: planner_excerpts --check|--update DOCUMENT JOB\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
