#include "facula/codegen/prediction.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/log.h"
#include "facula/base/parallel.h"
#include "facula/base/sha256.h"
#include "facula/codegen/background.h"
#include "facula/codegen/build_id.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/named.h"
#include "facula/codegen/store.h"

namespace facula::codegen {
namespace {

constexpr size_t kMost = 2048;  // most things that a process records
constexpr size_t kChapter = 32;
constexpr size_t kMisses = 8;  // after that many failed look-ups in a row it only looks where chapters begin
constexpr size_t kMostWords = 256;  // most words of a thing

std::vector<const Thing*>& things() {
  static auto* all = new std::vector<const Thing*>;
  return *all;
}
const Thing* thing_of(uint64_t name) {
  for (auto* t : things())
    if (hash_of(t->name()) == name) return t;
  return nullptr;
}

struct Item {
  const Thing* thing;
  std::vector<int64_t> words;
  uint64_t hash() const { return hash_bytes(words.data(), words.size() * 8, hash_of(thing->name())); }
};

// Chapters begin after the first thing, the fourth, eighth, sixteenth and every 32nd, so that programs with different
// beginnings are soon told apart.
bool begins_chapter(size_t place) {
  return place % kChapter == 0 || place == 4 || place == 8 || place == kChapter / 2;
}

// The name of the chapter that follows `last`, which came after `before`.
std::string name_of_chapter(const Item* before, const Item& last) {
  std::vector<uint64_t> words{uint64_t(num_threads()), before ? before->hash() : 0, last.hash()};
  for (auto w : last.words) words.push_back(uint64_t(w));
  std::string_view bytes(reinterpret_cast<const char*>(words.data()), words.size() * sizeof words[0]);
  return hex(sha256({"sequence", build_id(), target_features(), "\n", last.thing->name(), "\n", bytes}));
}

// ---- a chapter on disk: the name of the next chapter, or spaces; then things with their words

constexpr size_t kNameBytes = 64;

std::string written(const std::string& next, std::span<const Item> items) {
  std::string bytes = next.empty() ? std::string(kNameBytes, ' ') : next;
  auto word = [&](uint64_t w) { bytes.append(reinterpret_cast<const char*>(&w), sizeof w); };
  for (auto& i : items) {
    word(hash_of(i.thing->name()));
    word(i.words.size());
    for (auto w : i.words) word(uint64_t(w));
  }
  return bytes;
}

// Reads things up to the first invalid one.
std::pair<std::string, std::vector<Item>> read(std::string_view bytes) {
  std::pair<std::string, std::vector<Item>> chapter;
  if (bytes.size() < kNameBytes) return chapter;
  if (bytes[0] != ' ') chapter.first = bytes.substr(0, kNameBytes);
  std::vector<uint64_t> words((bytes.size() - kNameBytes) / sizeof(uint64_t));
  if (!words.empty()) std::memcpy(words.data(), bytes.data() + kNameBytes, words.size() * sizeof words[0]);
  for (size_t at = 0; at + 2 <= words.size();) {
    auto* thing = thing_of(words[at]);
    uint64_t count = words[at + 1];
    at += 2;
    if (!thing || count > kMostWords || count > words.size() - at) break;
    chapter.second.push_back({thing, {words.begin() + ptrdiff_t(at), words.begin() + ptrdiff_t(at + count)}});
    at += count;
  }
  return chapter;
}

// ---- the process

class Story {
 public:
  static Story& own() {
    static auto& s = *new Story;
    return s;
  }

  void wanted(const Thing& thing, Words words) {
    std::string chapter;
    {
      std::lock_guard lock(mutex_);
      if (owner_ != getpid() || items_.size() >= kMost) return;
      Item item{&thing, {words.begin(), words.end()}};
      uint64_t hash = item.hash();
      if (!wanted_.insert(hash).second) return;
      items_.push_back(std::move(item));
      auto guess = guessed_.find(hash);
      new_.push_back(guess == guessed_.end());
      if (guess == guessed_.end() && (misses_ < kMisses || begins_chapter(items_.size() - 1)))
        chapter = name_of_chapter(items_.size() > 1 ? &items_[items_.size() - 2] : nullptr, items_.back());
      else if (guess != guessed_.end()) chapter = std::exchange(next_[guess->second], "");
      if (items_.size() == 1) std::atexit([] { own().write(); });
    }
    if (!chapter.empty()) run_in_background([this, chapter = std::move(chapter)] { follow(chapter); });
  }

 private:
  void follow(const std::string& chapter) {
    std::string folder = user_folder();
    if (folder.empty()) return;
    std::string bytes = read_entry(folder, Stored::sequence, chapter, Owner::user);
    auto [next, items] = read(bytes);
    if (log_on(Log::cache) && !items.empty()) log_line(Log::cache, "hit sequence " + chapter);
    std::vector<std::function<void()>> jobs;
    {
      std::lock_guard lock(mutex_);
      misses_ = items.empty() ? misses_ + 1 : 0;
      hashes_[chapter] = hash_of(bytes);
      next_.push_back(std::move(next));
      for (auto& i : items) {
        uint64_t hash = i.hash();
        if (guessed_.size() >= 2 * kMost || !guessed_.emplace(hash, next_.size() - 1).second) continue;
        if (wanted_.count(hash)) continue;
        jobs.push_back([this, hash, item = std::move(i)] {
          if (!is_wanted(hash)) item.thing->make(item.words);
        });
      }
    }
    run_in_background_next(std::move(jobs));
  }
  bool is_wanted(uint64_t hash) {
    std::lock_guard lock(mutex_);
    return wanted_.count(hash);
  }

  // Writes the chapters that contain something that was not predicted.
  void write() {
    std::lock_guard lock(mutex_);
    std::string folder = owner_ == getpid() ? user_folder() : "";
    if (folder.empty()) return;
    auto name = [&](size_t k) { return name_of_chapter(k ? &items_[k - 1] : nullptr, items_[k]); };
    for (size_t begin = 0, end; begin + 1 < items_.size(); begin = end) {
      for (end = begin + 1; end < items_.size() && !begins_chapter(end);) ++end;
      size_t last = std::min(end + 1, items_.size());
      if (std::find(new_.begin() + ptrdiff_t(begin + 1), new_.begin() + ptrdiff_t(last), true) ==
          new_.begin() + ptrdiff_t(last))
        continue;
      std::vector<Item> told(items_.begin() + ptrdiff_t(begin + 1), items_.begin() + ptrdiff_t(last));
      for (size_t k = last; k < std::min(items_.size(), last + 2 * kChapter); ++k)
        if (items_[k].thing->takes_long()) told.push_back(items_[k]);
      std::string bytes = written(end < items_.size() ? name(end) : "", told);
      auto it = hashes_.find(name(begin));
      if (it == hashes_.end() || it->second != hash_of(bytes))
        write_entry(folder, Stored::sequence, name(begin), bytes, Owner::user);
    }
  }

  const pid_t owner_ = getpid();
  TableMutex mutex_;
  std::vector<Item> items_;  // in the order in which the program needed them
  std::vector<bool> new_;    // by item: it was not predicted
  std::unordered_set<uint64_t> wanted_;
  std::unordered_map<uint64_t, size_t> guessed_;      // by hash: the chapter that predicted it
  std::unordered_map<std::string, uint64_t> hashes_;  // by chapter that was read: the hash of its bytes
  size_t misses_ = 0;                                 // failed look-ups in a row
  std::vector<std::string> next_;  // by chapter that was read: the name of the next one, until that is read
};

}  // namespace

Thing::Thing(std::string_view name, void (*make)(Words), bool takes_long)
    : name_(name), make_(make), takes_long_(takes_long) {
  things().push_back(this);
}

void wanted(const Thing& thing, Words words) {
  if (!background_threads() || words.size() > kMostWords || build_id().empty() || records_kernels()) return;
  Story::own().wanted(thing, words);
}

std::vector<int64_t> words_of(std::string_view text) {
  std::vector<int64_t> words{int64_t(text.size())};
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), sizeof(int64_t)))) {
    int64_t w = 0;
    std::memcpy(&w, text.data(), std::min(text.size(), sizeof w));
    words.push_back(w);
  }
  return words;
}

std::string text_of(Words words) {
  if (words.empty() || uint64_t(words[0]) > words.subspan(1).size_bytes()) return "";
  return {reinterpret_cast<const char*>(words.data() + 1), size_t(words[0])};
}

}  // namespace facula::codegen
