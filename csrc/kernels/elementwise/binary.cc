#include "kernels/elementwise/binary.h"

#include "kernels/elementwise/rows.h"

namespace flexcpu::kernels {
namespace {

BinaryForm form_of(const plan::BinaryPlan& plan) {
  if (plan.wide_scalar) return BinaryForm::kVectorWideScalar;
  if (plan.elements.access[1] == plan::Access::kScalar) return BinaryForm::kScalarVector;
  return plan.elements.access[2] == plan::Access::kScalar ? BinaryForm::kVectorScalar : BinaryForm::kVectorVector;
}

}  // namespace

void binary(const plan::BinaryPlan& plan) {
  run_rows(plan.elements, binary_row(plan.op, plan.elements.compute, form_of(plan)), plan.alpha.bytes.data());
}

}  // namespace flexcpu::kernels
