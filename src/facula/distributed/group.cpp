#include "facula/distributed/group.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "facula/base/interrupt.h"
#include "facula/distributed/exchange.h"
#include "facula/distributed/messages.h"
#include "facula/distributed/monitor.h"

namespace facula::distributed {

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

double soft_deadline() {
  static const double seconds = [] {
    const char* text = std::getenv("FACULA_DISTRIBUTED_WATCHDOG_SECONDS");
    return text ? std::atof(text) : 5.0;
  }();
  return seconds;
}

// TORCH_DISTRIBUTED_DEBUG=DETAIL asks for checks before every collective returns.
double agreement_wait() {
  static const double seconds = [] {
    const char* text = std::getenv("TORCH_DISTRIBUTED_DEBUG");
    return text && std::string_view(text) == "DETAIL" ? 1e9 : 1.0;
  }();
  return seconds;
}

int64_t silence_limit() {
  static const int64_t limit = [] {
    const char *on = std::getenv("TORCH_NCCL_ENABLE_MONITORING"), *text = nullptr;
    if (on && (std::string_view(on) == "0" || std::string_view(on) == "false")) return int64_t(1) << 62;
    text = std::getenv("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC");
    double seconds = text ? std::atof(text) : 0;
    return int64_t((seconds > 0 ? std::min(seconds, 1e9) : 1.5) * 1e9);
  }();
  return limit;
}

std::string unreachable() {
  std::ostringstream text;
  text << "cannot be reached: no heartbeat for " << double(silence_limit()) / 1e9 << " s";
  return text.str();
}

namespace {

// Two processes with the same answer share memory and a network.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {}, network[64] = {};
  gethostname(name, sizeof name - 1);
  ssize_t n = readlink("/proc/self/ns/net", network, sizeof network - 1);
  return boot + "/" + name + "/" + std::string(network, size_t(std::max<ssize_t>(n, 0)));
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts{""};
  for (char c : text) {
    if (c == by) parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

}  // namespace

// ---- headers

bool Header::is_valid() const {
  return magic == kMagic && kind <= Kind::barrier && reduction <= Reduction::bxor && int(dtype) < kDTypeCount;
}

bool Header::agrees(const Header& o) const {
  bool same_sizes = kind == Kind::all_to_all ||
                    (rank_of_sizes == o.rank_of_sizes && !std::memcmp(sizes, o.sizes, sizeof sizes));
  return kind == o.kind && reduction == o.reduction && dtype == o.dtype && root == o.root &&
         sequence == o.sequence && same_sizes;
}

std::string Header::describe() const {
  std::string text = std::string(distributed::name(kind)) + "(";
  if (kind != Kind::barrier) {
    text += std::string(facula::name(dtype)) + "[";
    for (int d = 0; d < std::min<int>(rank_of_sizes, 4); ++d)
      text += (d ? ", " : "") + std::to_string(sizes[d]);
    text += rank_of_sizes > 4 ? ", ...]" : "]";
  }
  bool reduces = kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  if (reduces) text += std::string(", ") + distributed::name(reduction);
  bool rooted =
      kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter;
  if (rooted) text += ", root " + std::to_string(root);
  return text + ")";
}

// ---- connecting

Group::Group(std::string name, int rank, int size, std::string token, std::string interface)
    : name_(std::move(name)),
      token_(std::move(token)),
      interface_(std::move(interface)),
      host_(host_identity()),
      rank_(rank),
      size_(size),
      inbox_(token_, rank, size) {
  value_check(token_.size() == kTokenBytes, "init_process_group")
      << "a token has " << kTokenBytes << " characters";
  value_check(size >= 1 && size <= 1024 && rank >= 0 && rank < size, "init_process_group")
      << "rank " << rank << " of " << size << " ranks; groups have at most 1024";
  for (int p = 0; p < size; ++p) {
    peers_.push_back(p == rank ? nullptr : std::make_unique<Peer>());
    if (p != rank) peers_.back()->host = "?";
  }
  if (size > 1) listen();
}

Group::~Group() {
  leave();
  if (listener_ >= 0) close(listener_);
}

bool Group::is_local(int rank) const { return rank == rank_ || bool(peers_[size_t(rank)]->inbox); }

std::string Group::who(int rank) const {
  int pid = rank == rank_ ? int(getpid()) : peers_[size_t(rank)]->pid;
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + ") of group " + name_;
}

std::string Group::address() const {
  return host_ + "|" + std::to_string(getpid()) + "|" + std::to_string(inbox_.descriptor()) + "|" +
         interface_ + "|" + std::to_string(port_);
}

std::vector<bool> Group::open(const std::vector<std::string>& addresses) {
  static const bool tcp_only = [] {
    const char* transport = std::getenv("FACULA_DISTRIBUTED_TRANSPORT");
    return transport && std::string(transport) == "tcp";
  }();
  std::vector<bool> shared(size_t(size_), true);
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    Peer& peer = *peers_[size_t(p)];
    std::vector<std::string> parts = split(addresses[size_t(p)], '|');
    runtime_check(parts.size() == 5, "init_process_group")
        << "rank " << p << " has published no address of a rank";
    peer.host = parts[0];
    peer.pid = std::atoi(parts[1].c_str());
    peer.interface = parts[3];
    peer.port = std::atoi(parts[4].c_str());
    if (peer.host == host_ && !tcp_only)
      peer.inbox = Inbox::open(token_, peer.pid, std::atoi(parts[2].c_str()), p, size_);
    shared[size_t(p)] = bool(peer.inbox);
  }
  return shared;
}

void Group::connect(const std::vector<std::vector<bool>>& shared, double timeout,
                    const std::function<void()>& check) {
  int local = 1;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    Peer& peer = *peers_[size_t(p)];
    if (!shared[size_t(p)][size_t(rank_)]) peer.inbox.reset();
    if (!peer.inbox) continue;
    ++local;
    for (int lane = 0; lane < kLanes; ++lane)
      peer.links[lane] = std::make_unique<RingLink>(peer.inbox->ring(lane, rank_), inbox_.ring(lane, p),
                                                    kRingBytes, &(*peer.inbox)->bells[lane]);
    int descriptor = int(syscall(SYS_pidfd_open, peer.pid, 0));
    if (descriptor >= 0) processes_.push_back({p, descriptor});
    else mark_dead(p, "died before the group was connected");
  }
  if (size_ > 1) connect_tcp(timeout, check);
  // A rank that has a core to itself may spin for long.
  spins_ = {local <= int(std::thread::hardware_concurrency()) ? 420 : 20};
  if (size_ > 1) Monitor::watch(this);
}

// ---- failures

void Group::mark_dead(int rank, const std::string& how) {
  Peer& peer = *peers_[size_t(rank)];
  std::unique_lock lock(dead_mutex_);
  if (peer.dead.load()) return;
  bool left = peer.left || (peer.inbox && (*peer.inbox)->left.load());
  peer.how = left ? "has left the group" : how;
  peer.dead.store(true, std::memory_order_release);
  lock.unlock();
  for (Bell& bell : inbox_->bells) bell.ring();
  if (messages_) messages_->wake();
}

// A rank that raises tells the others why before it ends. Its other connections may be seen to close earlier; this one
// closes with the process, so that the wait is short unless the machine is busy.
void Group::hear_last_words(int peer) {
  constexpr int kMilliseconds = 1000;
  Peer& p = *peers_[size_t(peer)];
  for (int k = 0; k < kMilliseconds && p.control && !p.dead.load() && inbox_.abort_text().empty(); ++k) {
    if (k) usleep(1000);
    tick_remote(peer);
  }
}

// The first reason that this rank has heard of counts, and the others may not know it yet.
void Group::abort(const std::string& latest) {
  inbox_.set_abort(latest);
  std::string first = inbox_.abort_text();
  const std::string& reason = first.empty() ? latest : first;
  for (auto& p : peers_) {
    if (!p) continue;
    if (p->inbox) p->inbox->set_abort(reason);
    if (!p->control) continue;
    uint32_t n = uint32_t(reason.size());
    std::string frame = "a" + std::string(reinterpret_cast<char*>(&n), 4) + reason;
    std::lock_guard lock(control_mutex_);
    p->control->try_send(frame.data(), frame.size());
  }
  if (messages_) messages_->wake();
}

void Group::fail(const std::string& reason) {
  abort(reason);
  std::string first = inbox_.abort_text();  // another rank may have named the cause before
  throw Error(ErrorKind::runtime, ErrorType::RuntimeError, "torch.distributed",
              first.empty() ? reason : first);
}

void Group::leave() {
  {
    std::lock_guard lock(mutex_);
    if (left_) return;
    left_ = ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (messages_) messages_->end();
  Monitor::remove(this);
  inbox_->left.store(1);
  for (auto& p : peers_)
    if (p && p->control) p->control->try_send("l", 1);
  for (Process& p : processes_) close(p.pidfd);
  processes_.clear();
}

// ---- agreement

void Group::compare(int peer, const Header& theirs) {
  const Header& ours = history_[theirs.sequence - history_begin_];
  if (ours.agrees(theirs)) return;
  fail("collective " + std::to_string(ours.sequence) + " of group " + name_ +
       " differs between ranks: rank " + std::to_string(rank_) + " calls " + ours.describe() + ", rank " +
       std::to_string(peer) + " calls " + theirs.describe());
}

// Reads the headers of a peer before the collective `until`, as far as they have arrived; true if all have.
bool Group::verify(int peer, uint64_t until) {
  Peer& p = *peers_[size_t(peer)];
  while (p.verified < until) {
    char* to = reinterpret_cast<char*>(&p.partial);
    p.partial_bytes += p.links[0]->try_receive(to + p.partial_bytes, sizeof(Header) - p.partial_bytes);
    if (p.partial_bytes < sizeof(Header)) return false;
    p.partial_bytes = 0;
    if (!p.partial.is_valid())
      fail("rank " + std::to_string(peer) + " sends bytes that are not the header of a collective to rank " +
           std::to_string(rank_) + " of group " + name_);
    if (p.partial.sequence != p.verified)
      fail("rank " + std::to_string(peer) + " sends collective " + std::to_string(p.partial.sequence) +
           " where rank " + std::to_string(rank_) + " expects " + std::to_string(p.verified) + " of group " +
           name_);
    compare(peer, p.partial);
    ++p.verified;
  }
  return true;
}

// ---- execution

void Group::execute(Work& work) {
  std::string reason = inbox_.abort_text();
  runtime_check(reason.empty(), distributed::name(work.call.kind)) << reason;
  uint64_t sequence = work.sequence = next_++;
  Record& record = inbox_->records[sequence % kRecords];
  record.sequence.store(0, std::memory_order_relaxed);
  record.started_ns = uint64_t(now_ns());
  record.finished_ns = 0;
  record.bytes = work.call.input.empty() ? 0 : work.call.input[0].bytes;
  record.kind = uint8_t(work.call.kind);
  record.reduction = uint8_t(work.call.reduction);
  record.dtype = uint8_t(work.call.dtype);
  record.failed = 0;
  record.root = work.call.root;
  size_t n = work.call.site.copy(record.site, sizeof record.site - 1);
  record.site[n] = 0;
  record.sequence.store(sequence + 1, std::memory_order_release);
  inbox_->started.store(sequence + 1, std::memory_order_release);
  waiting_since_.store(int64_t(record.started_ns), std::memory_order_relaxed);
  try {
    Exchange(*this, work.call, sequence).run();
    uint64_t least = next_;
    for (int p = 0; p < size_; ++p)
      if (p != rank_) least = std::min(least, peers_[size_t(p)]->verified);
    while (history_begin_ < least) history_.pop_front(), ++history_begin_;
  } catch (...) {
    record.failed = 1;
    dump_records();
    waiting_since_.store(0, std::memory_order_relaxed);
    // An interrupted collective leaves streams incomplete, so that the group cannot go on.
    abort(std::string(distributed::name(work.call.kind)) + ": " + who(rank_) +
          " was interrupted in collective " + std::to_string(sequence));
    throw;
  }
  record.finished_ns = uint64_t(now_ns());
  work.duration_ns.store(int64_t(record.finished_ns - record.started_ns));
  inbox_->finished.store(sequence + 1, std::memory_order_release);
  waiting_since_.store(0, std::memory_order_relaxed);
}

// Writes the flight recorder to the file that PyTorch's switches name: a prefix, followed by the rank.
void Group::dump_records() const {
  const char* prefix = std::getenv("TORCH_FR_DUMP_TEMP_FILE");
  if (!prefix) prefix = std::getenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  const char* wanted = std::getenv("TORCH_NCCL_DUMP_ON_TIMEOUT");
  bool is_off = wanted && (std::string_view(wanted) == "0" || std::string_view(wanted) == "false");
  if (prefix && !is_off) std::ofstream(prefix + std::to_string(rank_)) << records() << "\n";
}

void Group::run(Work& work) {
  if (std::this_thread::get_id() == thread_.get_id()) {  // a callback of an operation calls another one
    finish_queue();
    return execute(work);
  }
  {
    std::unique_lock lock(mutex_);
    // Operations that were submitted before come first.
    while (!queue_.empty() || running_) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
    running_ = true;
  }
  std::exception_ptr error;
  try {
    execute(work);
  } catch (...) { error = std::current_exception(); }
  {
    std::lock_guard lock(mutex_);
    running_ = false;
    if (!queue_.empty() || thread_.joinable()) changed_.notify_all();
  }
  if (error) std::rethrow_exception(error);
}

void Group::submit(const Ref<Work>& work) {
  std::lock_guard lock(mutex_);
  runtime_check(!ending_, distributed::name(work->call.kind)) << "the group " << name_ << " was destroyed";
  queue_.push_back(work);
  if (!thread_.joinable()) thread_ = std::thread([this] { work_loop(); });
  changed_.notify_all();
}

void Group::work_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return (!queue_.empty() && !running_) || (ending_ && queue_.empty()); });
    if (queue_.empty()) return;
    execute_next(lock);
  }
}

// Executes the first operation of the queue, on the lane's thread. The lock is free in the meantime.
void Group::execute_next(std::unique_lock<std::mutex>& lock) {
  Ref<Work> work = queue_.front();
  running_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    execute(*work);
  } catch (...) { error = std::current_exception(); }
  lock.lock();
  queue_.pop_front();
  running_ = false;
  changed_.notify_all();
  lock.unlock();
  work->finish(error);
  work = nullptr;
  lock.lock();
}

void Group::finish_queue() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) execute_next(lock);
}

void Group::submit_message(const Ref<Work>& work) {
  {
    std::lock_guard lock(mutex_);
    runtime_check(!ending_, distributed::name(work->call.kind)) << "the group " << name_ << " was destroyed";
    if (!messages_) messages_ = std::make_unique<Messages>(*this);
  }
  messages_->submit(work);
}

}  // namespace facula::distributed
