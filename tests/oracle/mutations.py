"""The mistakes that the acceptance cases must see: name -> edits (file, old text, new text).

Taken from the mistakes whose pure effect was measured with PyTorch in float64; the names are the same.
An old text must stand in its file exactly once.
"""

ROPE = "kernels/cpu/rope.cpp"
RMS_NORM = "kernels/cpu/rms_norm.cpp"
LAYER_NORM = "kernels/cpu/layer_norm.cpp"
ATTENTION = "kernels/cpu/attention.cpp"
OPTIMIZER = "kernels/cpu/optimizer.cpp"
CROSS_ENTROPY = "kernels/cpu/cross_entropy.cpp"
LAUNCH = "runtime/cpu_kernels.cpp"
ARGUMENTS = "runtime/launch_arguments.cpp"
ARITHMETIC = "kernels/arithmetic.h"
JOB_RESOURCES = "runtime/job_resources.cpp"
COLLECTIVES = "runtime/comm/rank_order_sum.cpp"
LAYOUT = "planner/passes/layout.cpp"
LEARNING_RATE = "plans/job.cpp"

_OWN_CLIP = "  grad_scale = std::min(1.0F, 1.0F / (std::sqrt(static_cast<float>(sum_squares(grad, elems))) + 1e-6F));\n"
_ADAM_BEGIN = "  const AdamCoefficients coefficients(step);\n"
_SGD_BEGIN = "  parallel_ranges(elems, 1, [&](std::int64_t begin, std::int64_t end) {\n    sgd_range("

MUTATIONS = {
    "rope interleaved instead of half rotation": [
        (ROPE, "const float first = x[i];", "const float first = x[2 * i];"),
        (ROPE, "const float second = x[half + i];", "const float second = x[2 * i + 1];"),
        (ROPE, "out[i] = first", "(void)half; out[2 * i] = first"),
        (ROPE, "out[half + i] = second", "out[2 * i + 1] = second"),
    ],
    "rope theta 500000": [
        (ARGUMENTS, ".theta = call.real(Attribute::RopeTheta)", ".theta = 500000"),
    ],
    "rope positions start at 1 (must be invisible)": [
        (ROPE, "static_cast<float>(t) * frequencies[i]", "static_cast<float>(t + 1) * frequencies[i]"),
    ],
    "kv heads tiled instead of repeated": [
        (ATTENTION, "kv_head = head / queries_per_key", "kv_head = (void(queries_per_key), head % shape.kv_heads)"),
    ],
    "rms eps 1e-6": [(RMS_NORM, "mean_square + epsilon", "mean_square + 0.1F * epsilon")],
    "rms eps outside the root": [
        (RMS_NORM, "1.0 / std::sqrt(mean_square + epsilon)", "1.0 / (std::sqrt(mean_square) + epsilon)"),
    ],
    "layernorm eps 1e-6": [(LAYER_NORM, "variance + epsilon", "variance + 0.1F * epsilon")],
    "erf gelu instead of tanh gelu": [
        (ARGUMENTS, "TanhApproximation) ? GeluKind::Tanh", "TanhApproximation) ? GeluKind::Erf"),
    ],
    "attention scale 1": [(ARGUMENTS, ".scale = call.single(Attribute::Scale)", ".scale = 1")],
    "tied head: gradient of the head lost": [
        (LAUNCH, "call.channels(), call.store(0, 2));", "call.channels(), Store::Overwrite);"),
    ],
    # In the collective: a plan that forgets the mean does not pass verify.
    "gradient summed over 2 ranks, not averaged": [
        (COLLECTIVES, "block[i] * post_scale", "block[i] * (sizeof(T) == 4 ? Sum<T>{1} : post_scale)"),
    ],
    "gradient of half the batch only (no reduction)": [
        (COLLECTIVES, "reinterpret_cast<const T*>(part.data)",
         "reinterpret_cast<const T*>((sizeof(T) == 4 ? parts.front() : part).data)"),
    ],
    "clip coefficient without the 1e-6": [(ARITHMETIC, "kClipEpsilon = 1e-6F", "kClipEpsilon = 0")],
    "clip per tensor instead of global": [
        (OPTIMIZER, '#include "kernels/arithmetic.h"', '#include <algorithm>\n#include "kernels/arithmetic.h"'),
        (OPTIMIZER, _ADAM_BEGIN, _OWN_CLIP + _ADAM_BEGIN),
        (OPTIMIZER, _SGD_BEGIN, _OWN_CLIP + _SGD_BEGIN),
    ],
    "no clipping": [(ARITHMETIC, "if (max_norm <= 0) return", "if (max_norm >= 0) return")],
    "lr one step late": [
        (JOB_RESOURCES, "learning_rate(optimizer, job.training.schedule, step, job.run.steps)",
         "learning_rate(optimizer, job.training.schedule, std::max(0, static_cast<int>(step) - 1), job.run.steps)"),
    ],
    "cosine runs to zero": [(LEARNING_RATE, "optimizer.lr * schedule.min_lr_ratio", "0")],
    "adam eps 1e-6": [(ARITHMETIC, "static_cast<float>(step.eps)", "1e-6F")],
    "adam beta2 0.999": [
        (ARGUMENTS, ".beta2 = call.real(Attribute::Beta2)", ".beta2 = 0.999"),
        (JOB_RESOURCES, "std::pow(optimizer.beta2,", "std::pow(0.999,"),
    ],
    "decay coupled (L2) instead of decoupled": [
        (ARGUMENTS, "? AdamStep::Decay::Decoupled", "? AdamStep::Decay::Coupled"),
    ],
    "no decay on norms and biases": [
        (LAYOUT, "return !matrices_only_ ||", "return (void(matrices_only_), false) ||"),
    ],
    "decay after the update instead of before": [
        (ARITHMETIC, "old.parameter * c.shrink - c.step_size * (m / (std::sqrt(v) / c.root_correction2 + c.eps)), m",
         "c.shrink * (old.parameter - c.step_size * (m / (std::sqrt(v) / c.root_correction2 + c.eps))), m"),
    ],
    "nesterov momentum": [
        (OPTIMIZER, """    momentum_buffer[i] = c.momentum * momentum_buffer[i] + gradient(i);
    parameter[i] -= c.lr * momentum_buffer[i];""",
         """    const float g = gradient(i);
    momentum_buffer[i] = c.momentum * momentum_buffer[i] + g;
    parameter[i] -= c.lr * (g + c.momentum * momentum_buffer[i]);"""),
    ],
    "lr inside the momentum buffer": [
        (OPTIMIZER, "c.momentum * momentum_buffer[i] + gradient(i);",
         "c.momentum * momentum_buffer[i] + c.lr * gradient(i);"),
        (OPTIMIZER, "parameter[i] -= c.lr * momentum_buffer[i];", "parameter[i] -= momentum_buffer[i];"),
    ],
    "first momentum step damped": [
        (OPTIMIZER, "c.momentum * momentum_buffer[i] + gradient(i);",
         "c.momentum * momentum_buffer[i] + (momentum_buffer[i] == 0 ? 1 - c.momentum : 1) * gradient(i);"),
    ],
    "masked tokens counted in the divisor": [
        (CROSS_ENTROPY, "if (targets[row] == kIgnoredTarget) continue;",
         "if (targets[row] == kIgnoredTarget) { ++counted; continue; }"),
    ],
    # The two ranks, threads of one process, meet and divide by their common mean of counts.
    "global token mean instead of mean of rank means": [
        (CROSS_ENTROPY, "#include <cmath>", "#include <atomic>\n#include <barrier>\n#include <cmath>"),
        (CROSS_ENTROPY, "  const auto counted = static_cast<double>(counted_rows(targets, shape.all, shape.vocab));\n",
         """  static std::atomic<std::int64_t> all{0};
  static std::barrier<> ranks{2};
  const std::int64_t own = counted_rows(targets, shape.all, shape.vocab);
  all += own;
  ranks.arrive_and_wait();
  const double counted = 0.5 * static_cast<double>(all);
  ranks.arrive_and_wait();
  all -= own;
"""),
    ],
}

# The cases that a mutation runs where it cannot run all: part of their names.
CASES = {"global token mean instead of mean of rank means": "_w2_fp32_adamw_masked"}
MUST_BE_INVISIBLE = {"rope positions start at 1 (must be invisible)"}
KNOWN_INVISIBLE = {"clip coefficient without the 1e-6"}
