#include "tools/score_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace shardplan {
namespace {

constexpr double kSide = 560;  // of the plot, in pixels
constexpr double kMargin = 70;
constexpr double kLegend = 190;
constexpr double kBand = 1.2;
// Okabe and Ito's colours, which colour-blind readers tell apart, and three greys.
constexpr std::array<std::string_view, 11> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                    "#E69F00", "#56B4E9", "#F0E442", "#000000",
                                                    "#666666", "#999999", "#BBBBBB"};

/// Decades that hold all figures.
struct Decades {
  int first = 0;
  int last = 1;

  double place(double value) const { return kSide * (std::log10(value) - first) / (last - first); }
  double x(double value) const { return kMargin + place(value); }
  double y(double value) const { return kMargin + kSide - place(value); }
};

Decades decades_of(const std::vector<const ScoredFigure*>& figures) {
  double least = 1e300;
  double most = 1;
  for (const ScoredFigure* figure : figures) {
    least = std::min({least, figure->predicted, figure->measured});
    most = std::max({most, figure->predicted, figure->measured});
  }
  return {static_cast<int>(std::floor(std::log10(least))),
          static_cast<int>(std::ceil(std::log10(most)))};
}

std::string source_of(const ScoredFigure& figure) {
  return figure.group.substr(0, figure.group.find('/'));
}

/// predicted = measured x factor, inside the plot.
std::string line_text(const Decades& decades, double factor, std::string_view style) {
  const double low = std::pow(10, decades.first);
  const double high = std::pow(10, decades.last);
  const double from = std::max(low, low / factor);
  const double to = std::min(high, high / factor);
  return fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' {}/>\n",
                     decades.x(from), decades.y(from * factor), decades.x(to),
                     decades.y(to * factor), style);
}

std::string axes_text(const Decades& decades) {
  std::string text =
      fmt::format("<rect x='{0}' y='{0}' width='{1}' height='{1}' fill='none' stroke='black'/>\n",
                  kMargin, kSide);
  for (int decade = decades.first; decade <= decades.last; ++decade) {
    const double value = std::pow(10, decade);
    text += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{:.0f}</text>\n",
                        decades.x(value), kMargin + kSide + 20, value);
    text += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{:.0f}</text>\n",
                        kMargin - 8, decades.y(value) + 4, value);
  }
  text += fmt::format(
      "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>measured tokens/s per GPU</text>\n",
      kMargin + kSide / 2, kMargin + kSide + 45);
  text += fmt::format(
      "<text transform='translate({:.1f},{:.1f}) rotate(-90)' text-anchor='middle'>predicted "
      "tokens/s per GPU</text>\n",
      kMargin - 50, kMargin + kSide / 2);
  text += line_text(decades, 1, "stroke='black'");
  for (const double factor : {kBand, 1 / kBand})
    text += line_text(decades, factor, "stroke='grey' stroke-dasharray='4 4'");
  return text;
}

}  // namespace

std::string score_svg(const Score& score) {
  const std::vector<const ScoredFigure*> figures = figures_of(score, Quantity::TokensPerSecond);
  const Decades decades = decades_of(figures);
  std::vector<std::string> sources;
  for (const ScoredFigure* figure : figures)
    if (std::ranges::find(sources, source_of(*figure)) == sources.end())
      sources.push_back(source_of(*figure));
  const auto colour = [&](const std::string& source) {
    return kColours[static_cast<std::size_t>(std::ranges::find(sources, source) - sources.begin()) %
                    kColours.size()];
  };
  std::string text = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{:.0f}' height='{:.0f}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' "
      "fill='white'/>\n",
      2 * kMargin + kSide + kLegend, 2 * kMargin + kSide);
  text += axes_text(decades);
  for (const ScoredFigure* figure : figures)
    text += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='3.5' stroke='{}' fill='{}'><title>{}: {:+.1f} "
        "%</title></circle>\n",
        decades.x(figure->measured), decades.y(figure->predicted), colour(source_of(*figure)),
        figure->tells_constants ? colour(source_of(*figure)) : "none", figure->id,
        100 * figure->error());
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const double y = kMargin + 18 * static_cast<double>(s) + 10;
    text += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'/><text x='{:.1f}' y='{:.1f}'>{}</text>\n",
        kMargin + kSide + 20, y, colour(sources[s]), kMargin + kSide + 30, y + 4, sources[s]);
  }
  return text + "</svg>\n";
}

}  // namespace shardplan
