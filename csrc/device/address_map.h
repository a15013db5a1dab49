#pragma once
// Values found by the address of an object. Most calls have a few tensors, some have ten thousand: a scan up to kScan, from
// there on a hash table.

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <utility>

namespace flexcpu::device {

template <typename Value, unsigned kInline>
class AddressMap {
 public:
  // The value at `address`, or null; valid until the next add().
  Value* find(const void* address) {
    if (entries_.size() > kScan) {
      const auto found = positions_.find(address);
      return found == positions_.end() ? nullptr : &entries_[found->second].second;
    }
    for (auto& [known, value] : entries_)
      if (known == address) return &value;
    return nullptr;
  }

  // `address` must be new.
  Value& add(const void* address, Value value) {
    entries_.emplace_back(address, std::move(value));
    if (entries_.size() == kScan + 1) {
      for (size_t i = 0; i < entries_.size(); ++i) positions_[entries_[i].first] = i;
    } else if (entries_.size() > kScan) {
      positions_[address] = entries_.size() - 1;
    }
    return entries_.back().second;
  }

  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  static constexpr size_t kScan = 16;
  c10::SmallVector<std::pair<const void*, Value>, kInline> entries_;
  ska::flat_hash_map<const void*, size_t> positions_;
};

}  // namespace flexcpu::device
