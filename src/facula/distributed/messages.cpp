#include "facula/distributed/messages.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace facula::distributed {

namespace {
constexpr uint32_t kMagic = 0xfac01a65;
constexpr size_t kPadding = 64;
constexpr size_t kStorageStep = 1 << 20;  // the memory of a stored message grows with the bytes that arrive
constexpr uint64_t kLongest = uint64_t(1) << 48;  // bytes of a message; more can only be damaged
constexpr char kZeros[kPadding] = {};
size_t padded(size_t bytes) { return (bytes + kPadding - 1) / kPadding * kPadding; }
std::exception_ptr error_of(const Work& work, const std::string& reason) {
  return std::make_exception_ptr(
      Error(ErrorKind::runtime, ErrorType::RuntimeError, name(work.call.kind), reason));
}
}  // namespace

Messages::Messages(Group& group)
    : group_(group), peers_(size_t(group.size())), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] { loop(); });
}

Messages::~Messages() {
  end();
  close(wake_);
}

void Messages::end() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void Messages::wake() {
  uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) return;  // it is awake
  group_.inbox_->bells[1].ring();
}

void Messages::submit(const Ref<Work>& work) {
  {
    std::lock_guard lock(mutex_);
    submitted_.push_back(work);
    changed_.notify_all();
  }
  wake();
}

bool Messages::is_idle() const { return deadlines_.empty(); }

void Messages::loop() {
  int rounds = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (is_idle()) changed_.wait(lock, [&] { return ending_ || !submitted_.empty(); });
      if (ending_) break;
      for (Ref<Work>& w : submitted_) {
        deadlines_.emplace_back(w, now_ns() + int64_t(std::min(w->call.timeout, 1e9) * 1e9));
        if (w->call.kind == Kind::recv) receives_.push_back(w);
        else
          peers_[size_t(w->call.root)].out.push_back(
              {w, {kMagic, w->call.dtype, {}, w->call.tag, w->call.input[0].bytes, {}}, 0});
      }
      submitted_.clear();
    }
    try {
      take_stored();
      if (step()) {
        rounds = 0;
        std::erase_if(deadlines_, [](auto& d) { return d.first->is_done(); });
        continue;
      }
      if (++rounds < group_.spins_[0] / 4) {
        if (rounds > 20) sched_yield();
        continue;
      }
      check();
      if (!is_idle()) sleep();
    } catch (const Error& e) { fail_all(e.message()); } catch (const std::exception& e) {
      fail_all(e.what());
    }
  }
  fail_all("the group " + group_.name_ + " was destroyed");
}

void Messages::sleep() {
  std::vector<pollfd> sockets{{wake_, POLLIN, 0}};
  for (int p = 0; p < group_.size_; ++p) {
    if (p == group_.rank_ || group_.peers_[size_t(p)]->inbox || group_.peers_[size_t(p)]->dead.load())
      continue;
    int events = POLLIN | (peers_[size_t(p)].out.empty() ? 0 : POLLOUT);
    sockets.push_back({group_.peers_[size_t(p)]->links[1]->descriptor(), short(events), 0});
  }
  bool all_shared = sockets.size() == 1, some_shared = int(sockets.size()) < group_.size_;
  if (all_shared) {
    group_.inbox_->bells[1].sleep(20000, [&] {
      pollfd woken{wake_, POLLIN, 0};
      return poll(&woken, 1, 0) > 0 || step();
    });
  } else {
    timespec limit{0, some_shared ? 200'000 : 20'000'000};
    ppoll(sockets.data(), sockets.size(), &limit, nullptr);
  }
  uint64_t count;
  if (read(wake_, &count, sizeof count) < 0) return;  // nobody woke it
}

bool Messages::step() {
  bool moved = false;
  for (int p = 0; p < group_.size_; ++p)
    if (p != group_.rank_ && send_some(p)) moved = true;
  if (receives_.empty() &&
      std::none_of(peers_.begin(), peers_.end(), [](const Peer& p) { return bool(p.target); }))
    return moved;
  for (int p = 0; p < group_.size_; ++p)
    if (p != group_.rank_ && receive_some(p)) moved = true;
  return moved;
}

bool Messages::send_some(int peer) {
  Peer& p = peers_[size_t(peer)];
  Link& link = *group_.peers_[size_t(peer)]->links[1];
  bool moved = false;
  while (!p.out.empty()) {
    Sending& s = p.out.front();
    const Buffer& b = s.work->call.input[0];
    size_t payload = sizeof(Frame) + b.bytes, total = sizeof(Frame) + padded(b.bytes);
    while (s.done < total) {
      const char* from = s.done < sizeof(Frame) ? reinterpret_cast<const char*>(&s.frame) + s.done
                         : s.done < payload     ? b.data + (s.done - sizeof(Frame))
                                                : kZeros;
      size_t limit = s.done < sizeof(Frame) ? sizeof(Frame) : s.done < payload ? payload : total;
      size_t n = link.try_send(from, limit - s.done);
      if (!n) return moved;
      s.done += n;
      moved = true;
    }
    Ref<Work> work = s.work;
    p.out.pop_front();
    work->finish(nullptr);
  }
  return moved;
}

Ref<Work> Messages::matching(int peer, const Frame& frame) {
  for (auto at = receives_.begin(); at != receives_.end(); ++at) {
    const Call& call = (*at)->call;
    if ((call.root != peer && call.root != -1) || call.tag != frame.tag) continue;
    Ref<Work> work = *at;
    receives_.erase(at);
    return work;
  }
  return nullptr;
}

void Messages::check_fits(int peer, const Frame& frame, const Work& work) {
  if (frame.bytes == work.call.output[0].bytes && frame.dtype == work.call.dtype) return;
  auto shown = [](DType d, uint64_t bytes) {
    return std::to_string(bytes / uint64_t(itemsize(d))) + " elements of " + facula::name(d);
  };
  group_.fail("rank " + std::to_string(peer) + " sends " + shown(frame.dtype, frame.bytes) + " with tag " +
              std::to_string(frame.tag) + " and rank " + std::to_string(group_.rank_) + " receives " +
              shown(work.call.dtype, work.call.output[0].bytes));
}

void Messages::begin_message(int peer) {
  Peer& p = peers_[size_t(peer)];
  bool is_valid = p.frame.magic == kMagic && int(p.frame.dtype) < kDTypeCount && p.frame.bytes < kLongest;
  if (!is_valid)
    group_.fail("rank " + std::to_string(peer) + " sends bytes that are not a message to rank " +
                std::to_string(group_.rank_) + " of group " + group_.name_);
  p.target = matching(peer, p.frame);
  if (p.target) check_fits(peer, p.frame, *p.target);
}

// The place of the next bytes of the incoming message: a part of the result, of stored bytes, or of the padding.
std::pair<char*, size_t> Messages::room(Peer& p) {
  size_t at = p.have - sizeof(Frame), bytes = size_t(p.frame.bytes);
  static_assert(sizeof(p.padding) == kPadding);
  if (at >= bytes) return {p.padding, padded(bytes) - at};
  if (p.target) return {p.target->call.output[0].data + at, bytes - at};
  if (at == p.storing.size()) p.storing.resize(std::min(bytes, at + kStorageStep));
  return {p.storing.data() + at, p.storing.size() - at};
}

bool Messages::receive_some(int peer) {
  Peer& p = peers_[size_t(peer)];
  Link& link = *group_.peers_[size_t(peer)]->links[1];
  bool moved = false;
  while (true) {
    if (p.have < sizeof(Frame)) {
      if (receives_.empty() && !p.have) return moved;
      size_t n = link.try_receive(reinterpret_cast<char*>(&p.frame) + p.have, sizeof(Frame) - p.have);
      p.have += n;
      if (p.have < sizeof(Frame)) return moved || n;
      moved = true;
      begin_message(peer);
    }
    size_t total = sizeof(Frame) + padded(p.frame.bytes);
    while (p.have < total) {
      auto [to, space] = room(p);
      size_t n = link.try_receive(to, space);
      if (!n) return moved;
      p.have += n;
      moved = true;
    }
    p.have = 0;
    if (p.target) {
      Ref<Work> work = std::move(p.target);
      p.target = nullptr;
      work->source.store(peer);
      work->finish(nullptr);
    } else {
      p.stored.push_back({p.frame, std::move(p.storing)});
      p.storing.clear();
    }
  }
}

// Gives messages that arrived earlier to receives that were posted since.
void Messages::take_stored() {
  for (int peer = 0; peer < group_.size_; ++peer) {
    Peer& p = peers_[size_t(peer)];
    for (auto at = p.stored.begin(); at != p.stored.end();) {
      Ref<Work> work = matching(peer, at->frame);
      if (!work) {
        ++at;
        continue;
      }
      check_fits(peer, at->frame, *work);
      if (at->frame.bytes) std::memcpy(work->call.output[0].data, at->bytes.data(), at->frame.bytes);
      at = p.stored.erase(at);
      work->source.store(peer);
      work->finish(nullptr);
    }
  }
  std::erase_if(deadlines_, [](auto& d) { return d.first->is_done(); });
}

// Ends what can no longer complete: after the end of the group, a death, or a deadline.
void Messages::check() {
  std::string reason = group_.inbox_.abort_text();
  runtime_check(reason.empty(), "messages") << reason;
  auto is_dead = [&](int p) {
    return group_.peers_[size_t(p)]->dead.load() || group_.peers_[size_t(p)]->links[1]->is_closed();
  };
  for (auto& [work, end] : deadlines_) {
    int peer = work->call.root;
    bool lost = peer >= 0 && is_dead(peer);
    if (peer < 0) {
      lost = true;
      for (int p = 0; p < group_.size_; ++p)
        if (p != group_.rank_ && !is_dead(p)) lost = false;
      if (lost) peer = group_.rank_ ? 0 : group_.size_ - 1;
    }
    if (lost && !step() && !work->is_done()) {
      group_.hear_last_words(peer);
      group_.mark_dead(peer, "died (its connection was closed)");
      group_.fail(std::string(name(work->call.kind)) + ": " + group_.who(peer) + " " +
                  group_.peers_[size_t(peer)]->how);
    }
    if (now_ns() < end || work->is_done()) continue;
    std::string late = "Timed out waiting " + std::to_string(int64_t(work->call.timeout * 1000)) + "ms for " +
                       name(work->call.kind) + " operation to complete";
    auto posted = std::find_if(receives_.begin(), receives_.end(), [&](auto& r) { return r == work; });
    if (posted == receives_.end()) group_.fail(group_.who(group_.rank_) + ": " + late);
    receives_.erase(posted);  // nothing of it has arrived: the group can go on
    work->finish(error_of(*work, late));
  }
  std::erase_if(deadlines_, [](auto& d) { return d.first->is_done(); });
}

void Messages::fail_all(const std::string& reason) {
  std::vector<Ref<Work>> all;
  {
    std::lock_guard lock(mutex_);
    all.swap(submitted_);
  }
  for (auto& [work, end] : deadlines_) all.push_back(work);
  deadlines_.clear();
  receives_.clear();
  for (Peer& p : peers_) {
    p.out.clear();
    p.target = nullptr;
  }
  for (auto& work : all) work->finish(error_of(*work, reason));
}

}  // namespace facula::distributed
