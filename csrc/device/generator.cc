#include "device/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "device/storage.h"

namespace flexcpu::device {
namespace {

// A flex generator is a Mersenne Twister of the CPU's kind under another device: CPU kernels draw from the inner one. Its
// state is the inner one's state, a CPU byte tensor.
class FlexGenerator final : public c10::GeneratorImpl {
 public:
  explicit FlexGenerator(at::Generator inner)
      : c10::GeneratorImpl(kFlex, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), inner_(std::move(inner)) {}

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  const at::Generator& inner() const { return inner_; }

  void set_current_seed(uint64_t seed) override { locked([&] { inner_.set_current_seed(seed); }); }
  uint64_t current_seed() const override { return inner_.current_seed(); }
  uint64_t seed() override {
    uint64_t seed = 0;
    locked([&] { seed = inner_.seed(); });
    return seed;
  }
  // A Mersenne Twister has no offset; pickling a device's generator asks for one.
  void set_offset(uint64_t offset) override { TORCH_CHECK(offset == 0, "flex generators have no offset"); }
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override {
    locked([&] { inner_.unsafeGetGeneratorImpl()->set_state(state); });
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner_.unsafeGetGeneratorImpl()->get_state(); }

 private:
  // CPU kernels hold the inner generator's mutex while they draw.
  template <typename Body>
  void locked(const Body& body) {
    std::lock_guard<std::mutex> guard(inner_.mutex());
    body();
  }
  FlexGenerator* clone_impl() const override { return new FlexGenerator(inner_.clone()); }

  at::Generator inner_;
};

}  // namespace

at::Generator new_generator(uint64_t seed) {
  return at::make_generator<FlexGenerator>(at::detail::createCPUGenerator(seed));
}

const at::Generator& default_generator() {
  static const at::Generator instance = new_generator(c10::detail::getNonDeterministicRandom());
  return instance;
}

const at::Generator& cpu_generator_of(const at::Generator& generator) {
  if (!generator.defined()) return cpu_generator_of(default_generator());
  TORCH_CHECK(generator.device().type() == kFlex.type(), "Expected a 'flex' device type for generator but found '",
              generator.device().type(), "'");
  return generator.get<FlexGenerator>()->inner();
}

}  // namespace flexcpu::device
