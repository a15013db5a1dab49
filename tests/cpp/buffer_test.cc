// Buffer: who may write, who keeps the bytes alive, what is counted.

#include "memory/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "memory/block_cache.h"
#include "memory/statistics.h"

namespace flexcpu::memory {
namespace {

using Use = Buffer::Use;

// Fails the test when it ends with more buffers alive than it began with.
class BufferTest : public testing::Test {
 protected:
  static int64_t alive() { return statistics().allocations.current(); }
  void TearDown() override {
    EXPECT_EQ(alive(), alive_before_);
    EXPECT_EQ(statistics().allocated_bytes.current(), bytes_before_);
  }

 private:
  const int64_t alive_before_ = alive();
  const int64_t bytes_before_ = statistics().allocated_bytes.current();
};

TEST_F(BufferTest, BytesAreAligned) {
  for (const size_t size : {1, 63, 64, 700, 768, 769, 4096, 1 << 20}) {
    Buffer* buffer = Buffer::allocate(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kAlignment, 0) << size;
    EXPECT_EQ(buffer->size(), size);
    std::memset(buffer->data(), 1, size);
    buffer->release();
  }
}

TEST_F(BufferTest, MoreThanThereIsThrows) {
  EXPECT_THROW(Buffer::allocate(SIZE_MAX), std::bad_alloc);
  EXPECT_THROW(Buffer::allocate(SIZE_MAX / 2), std::bad_alloc);
}

TEST_F(BufferTest, SharingAndEscapingExcludeEachOther) {
  Buffer* buffer = Buffer::allocate(8);
  ASSERT_TRUE(buffer->share());
  EXPECT_TRUE(buffer->is_shared());
  EXPECT_FALSE(buffer->escape());
  buffer->release();
  EXPECT_FALSE(buffer->is_shared());
  ASSERT_TRUE(buffer->escape());
  EXPECT_FALSE(buffer->share());
  buffer->alias();
  EXPECT_EQ(buffer->owners(), 2);
  EXPECT_FALSE(buffer->is_shared());  // both are to see writes
  buffer->release();
  buffer->release();
}

TEST_F(BufferTest, PinnedDownBytesAreNotShared) {
  Buffer* buffer = Buffer::allocate(8);
  buffer->pin_down();
  EXPECT_FALSE(buffer->share());
  EXPECT_TRUE(buffer->is_pinned_down());
  buffer->release();
}

TEST_F(BufferTest, APinOutlivesTheOwners) {
  Buffer* buffer = Buffer::allocate(8);
  buffer->pin(Use::kRead);
  buffer->pin(Use::kWrite);
  const int64_t before = alive();
  buffer->release();
  buffer->unpin(Use::kRead);
  EXPECT_EQ(alive(), before);
  buffer->unpin(Use::kWrite);
  EXPECT_EQ(alive(), before - 1);
}

TEST_F(BufferTest, AStrandedReaderMakesTheLastOwnerCopy) {
  Buffer* buffer = Buffer::allocate(8);
  ASSERT_TRUE(buffer->share());
  buffer->pin(Use::kRead);
  buffer->release();
  EXPECT_TRUE(buffer->is_shared());
  buffer->unpin(Use::kRead);
  EXPECT_FALSE(buffer->is_shared());
  buffer->release();
}

// A list of a hundred thousand clones of one tensor is read by one op.
TEST_F(BufferTest, ReadersByTheHundredThousandKeepToTheirBits) {
  Buffer* buffer = Buffer::allocate(8);
  for (int i = 0; i < 200'000; ++i) buffer->pin(Use::kRead);
  EXPECT_FALSE(buffer->is_shared());
  EXPECT_FALSE(buffer->is_escaped());
  EXPECT_EQ(buffer->owners(), 1);
  ASSERT_TRUE(buffer->share());
  buffer->release();
  for (int i = 0; i < 200'000; ++i) buffer->unpin(Use::kRead);
  EXPECT_FALSE(buffer->is_shared());
  buffer->release();
}

TEST_F(BufferTest, TooManyPinsAreRefusedAndNothingIsLost) {
  Buffer* buffer = Buffer::allocate(8);
  int pins = 0;
  try {
    for (;; ++pins) buffer->pin(Use::kWrite);
  } catch (const std::length_error&) {
  }
  EXPECT_EQ(pins, 4096);
  EXPECT_EQ(buffer->owners(), 1);
  EXPECT_FALSE(buffer->is_escaped());
  while (pins-- > 0) buffer->unpin(Use::kWrite);
  buffer->release();
}

TEST_F(BufferTest, AKeptBufferLivesAsLongAsItsKeeper) {
  const int64_t before = alive();
  Buffer* keeper = Buffer::allocate(8);
  keeper->keep(Buffer::allocate(8));
  EXPECT_FALSE(keeper->share());
  EXPECT_EQ(alive(), before + 2);
  keeper->release();
  EXPECT_EQ(alive(), before);
}

TEST_F(BufferTest, WhatIsBeingWrittenIsNotShared) {
  Buffer* buffer = Buffer::allocate(8);
  buffer->pin(Use::kWrite);
  EXPECT_FALSE(buffer->share());
  buffer->unpin(Use::kWrite);
  EXPECT_TRUE(buffer->share());
  buffer->release();
  buffer->release();
}

void count_release(void* count) { ++*static_cast<int*>(count); }

TEST_F(BufferTest, AdoptedBytesAreReleasedOnce) {
  int released = 0;
  std::byte bytes[16];
  Buffer* buffer = Buffer::adopt(bytes, sizeof bytes, &released, &count_release);
  EXPECT_EQ(buffer->data(), bytes);
  EXPECT_EQ(buffer->context_of(&count_release), &released);
  EXPECT_EQ(buffer->context_of(nullptr), nullptr);
  ASSERT_TRUE(buffer->share());
  buffer->release();
  EXPECT_EQ(released, 0);
  buffer->release();
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace flexcpu::memory
