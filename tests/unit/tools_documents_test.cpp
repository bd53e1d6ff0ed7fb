#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plans/error.h"
#include "tools/documents.h"
#include "tools/output_files.h"

namespace shardplan {
namespace {

const Hardware& hardware() {
  static const Hardware read = Hardware::read(data_folder());
  return read;
}

/// A folder of its own for each test.
class Documents : public testing::Test {
 protected:
  Documents() { std::filesystem::create_directories(folder_); }
  ~Documents() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  DocumentKind kind_of(const std::string& text) const {
    write_file(path("document"), text);
    return read_document(path("document")).kind;
  }
  /// A plan.json of a small job.
  std::string plan_file() const {
    write_file(path("job.yaml"),
               "model: {preset: llama-tiny}\ncluster: {gpu: cpu, gpus_per_node: 2}\n"
               "training: {sequence_length: 16}");
    const LoadedPlan loaded = load_plan({.path = path("job.yaml")}, hardware());
    write_file(path("plan.json"), to_json(loaded.plan));
    return path("plan.json");
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      (std::string("shardplan_documents_") +
       testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()));
};

TEST_F(Documents, SayThemselvesWhatTheyAre) {
  EXPECT_EQ(kind_of("model: {preset: gpt2}"), DocumentKind::Job);
  EXPECT_EQ(kind_of("{model: {preset: gpt2}}"), DocumentKind::Job);
  EXPECT_EQ(kind_of("{\"ranks\": []}"), DocumentKind::Job);
  EXPECT_EQ(kind_of("  {\"schema\": \"shardplan/plan/1\"}"), DocumentKind::Plan);
  EXPECT_EQ(kind_of("{\"schema\": \"shardplan/measurement/1\"}"), DocumentKind::Measurement);
  EXPECT_THROW(kind_of("{\"schema\": \"shardplan/plan/2\"}"), InputError);
  EXPECT_THROW(kind_of("{\"schema\": \"shardplan/plan/1\""), InputError);
}

TEST_F(Documents, MissingOnesAreWrongInput) {
  EXPECT_THROW(read_document(path("missing")), InputError);
  EXPECT_THROW(read_document(path("")), InputError);
}

TEST_F(Documents, APlanStaysTheSameWhenOnlyTheRunChanges) {
  const std::string file = plan_file();
  const LoadedPlan as_is = load_plan({.path = file}, hardware());
  const LoadedPlan longer =
      load_plan({.path = file, .settings = {"run.steps=7", "run.output=elsewhere"}}, hardware());
  EXPECT_EQ(longer.note, "");
  EXPECT_EQ(longer.plan.job.run.steps, 7);
  EXPECT_EQ(hash_of(longer.plan), hash_of(as_is.plan));
}

TEST_F(Documents, APlanIsMadeAgainWhenItsJobChanges) {
  const LoadedPlan changed =
      load_plan({.path = plan_file(), .settings = {"training.sequence_length=32"}}, hardware());
  EXPECT_NE(changed.note, "");
  EXPECT_EQ(changed.plan.job.training.sequence_length, 32);
}

TEST_F(Documents, APlanThatIsNotRightIsRefused) {
  const std::string file = plan_file();
  Plan plan = load_plan({.path = file}, hardware()).plan;
  for (Instruction& instruction : plan.instructions)
    instruction.after.clear();
  write_file(file, to_json(plan));
  EXPECT_THROW(load_plan({.path = file}, hardware()), InputError);
}

TEST_F(Documents, FilesAreWholeOrAbsent) {
  {
    LineFile lines(path("lines"));
    lines.add("one");
    EXPECT_FALSE(std::filesystem::exists(path("lines")));
    lines.finish();
  }
  std::ifstream file(path("lines"));
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "one");
  EXPECT_THROW(write_file(path("no/such/folder"), "text"), SystemError);
}

}  // namespace
}  // namespace shardplan
