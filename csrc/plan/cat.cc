#include "plan/cat.h"

#include <algorithm>
#include <utility>

#include "parallel/parallel.h"
#include "plan/copy.h"
#include "plan/explain.h"

namespace flexcpu::plan {
namespace {

struct CatTuning {
  static constexpr int64_t kMostWays = 4;
  static constexpr int64_t kShortestInterleaved = 16;
  // Shorter runs are copied across rows: the call costs more than the copying.
  static constexpr int64_t kShortRunBytes = 32;
  // Bytes of a block of rows.
  static constexpr int64_t kBlockBytes = 16 * 1024;
};

const char* refuse_interleave(const CatPlan& plan) {
  const auto ways = static_cast<int64_t>(plan.inputs.size());
  if (ways < 2 || ways > CatTuning::kMostWays) return "there are not 2 to 4 inputs";
  if (plan.columns != ways) return "the inputs have several columns";
  if (plan.element_size > 8) return "no vectors interleave elements of 16 bytes";
  if (plan.rows < CatTuning::kShortestInterleaved) return "there are few rows";
  return nullptr;
}

const char* refuse_short_runs(const CatPlan& plan) {
  if (plan.rows == 1) return "there is one row";
  const bool has_long = std::any_of(plan.inputs.begin(), plan.inputs.end(), [&](const CatInput& input) {
    return input.columns * plan.element_size >= CatTuning::kShortRunBytes;
  });
  return has_long ? "the rows of an input are long" : nullptr;
}

void explain_cat(const CatPlan& plan) {
  Explanation explanation{.family = "cat", .route = name_of(plan.route), .refusals = {}, .dtypes = {},
                          .extents = {plan.rows, plan.columns}, .team = plan.team};
  for (int route = 0; route < static_cast<int>(plan.route); ++route)
    explanation.refusals.push_back({name_of(static_cast<CatRoute>(route)), plan.refusals[route]});
  explain(std::move(explanation));
}

}  // namespace

const char* name_of(CatRoute route) {
  constexpr const char* names[kCatRoutes] = {"interleave", "short runs", "runs"};
  return names[static_cast<int>(route)];
}

void plan_cat(CatPlan& plan, int threads) {
  plan.columns = 0;
  for (const CatInput& input : plan.inputs) plan.columns += input.columns;
  const int64_t numel = plan.rows * plan.columns;
  plan.team = parallel::team_size(numel, parallel::kElementGrain, threads);

  using Refuse = const char* (*)(const CatPlan&);
  constexpr Refuse offers[] = {refuse_interleave, refuse_short_runs};
  plan.route = CatRoute::kRuns;
  for (int route = 0; route < std::ssize(offers); ++route) {
    plan.refusals[route] = offers[route](plan);
    if (plan.refusals[route]) continue;
    plan.route = static_cast<CatRoute>(route);
    break;
  }
  plan.block_rows = std::max<int64_t>(1, CatTuning::kBlockBytes / (plan.columns * plan.element_size));
  plan.streams = plan.route == CatRoute::kRuns && is_beyond_cache(numel * plan.element_size);
  if (is_explained()) [[unlikely]] explain_cat(plan);
}

}  // namespace flexcpu::plan
