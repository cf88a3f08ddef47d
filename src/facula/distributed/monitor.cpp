#include "facula/distributed/monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

namespace facula::distributed {

namespace {

constexpr int kTick = 100;  // milliseconds

struct State {
  std::mutex mutex;
  std::vector<Group*> groups;
  std::vector<Pulse*> pulses;
  std::set<std::pair<Group*, int>> ended;  // processes, by their pidfds
  int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pid_t pid = getpid();
  bool started = false;  // the thread
};
State* state() {
  static State* current = new State();
  if (current->pid != getpid()) current = new State();  // a forked child watches its own groups
  return current;
}

void wake(State* s) {
  uint64_t one = 1;
  if (write(s->wake, &one, sizeof one) < 0) return;  // it is awake
}

template <class T>
bool contains(const std::vector<T*>& list, T* item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Sources of events: the ends of processes of groups, and bytes of pulses.
struct Sources {
  std::vector<pollfd> polled;
  std::vector<std::pair<Group*, Group::Process>> processes;  // polled[1], ...
  std::vector<Pulse*> pulses;                                // the last ones of `polled`

  explicit Sources(State* s) : polled{{s->wake, POLLIN, 0}} {
    std::lock_guard lock(s->mutex);
    for (Group* g : s->groups)
      for (Group::Process p : g->processes()) {
        if (s->ended.count({g, p.pidfd})) continue;
        polled.push_back({p.pidfd, POLLIN, 0});
        processes.emplace_back(g, p);
      }
    for (Pulse* p : s->pulses)
      if (p->is_open()) {
        polled.push_back({p->descriptor(), POLLIN, 0});
        pulses.push_back(p);
      }
  }

  // The mutex of the state is held.
  void take(State* s) {
    for (size_t i = 0; i < processes.size(); ++i) {
      auto [group, process] = processes[i];
      if (!polled[i + 1].revents || !contains(s->groups, group)) continue;
      s->ended.insert({group, process.pidfd});
      group->mark_dead(process.rank, "died");
    }
    size_t first = polled.size() - pulses.size();
    for (size_t i = 0; i < pulses.size(); ++i)
      if (polled[first + i].revents && contains(s->pulses, pulses[i])) pulses[i]->read();
  }
};

void loop(State* s) {
  int64_t next = now_ns();
  while (true) {
    Sources sources(s);
    int limit = int(std::max<int64_t>(0, (next - now_ns()) / 1'000'000));
    poll(sources.polled.data(), sources.polled.size(), limit);
    uint64_t count;
    if (sources.polled[0].revents && read(s->wake, &count, sizeof count) < 0) count = 0;
    std::lock_guard lock(s->mutex);
    sources.take(s);
    int64_t late = now_ns() - next, tick = int64_t(kTick) * 1'000'000;
    if (late < 0) continue;
    next = now_ns() + tick;
    // While this process is stopped, or the machine too busy for it, it does not hear the others.
    for (Group* g : late > tick ? s->groups : std::vector<Group*>()) g->forgive(late);
    for (Pulse* p : late > tick ? s->pulses : std::vector<Pulse*>()) p->forgive(late);
    for (Group* g : s->groups) g->tick();
    for (Pulse* p : s->pulses) p->beat();
  }
}

template <class T>
void add(State* s, std::vector<T*> State::* list, T* item) {
  {
    std::lock_guard lock(s->mutex);
    if (!s->started) std::thread([s] { loop(s); }).detach();
    s->started = true;
    (s->*list).push_back(item);
  }
  wake(s);
}

}  // namespace

void Monitor::watch(Group* group) { add(state(), &State::groups, group); }
void Monitor::watch(Pulse* pulse) { add(state(), &State::pulses, pulse); }

void Monitor::remove(Group* group) {
  State* s = state();
  std::lock_guard lock(s->mutex);
  std::erase(s->groups, group);
  std::erase_if(s->ended, [&](auto& e) { return e.first == group; });
}

void Monitor::remove(Pulse* pulse) {
  State* s = state();
  std::lock_guard lock(s->mutex);
  std::erase(s->pulses, pulse);
}

char process_state(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? '?' : text[end + 2];
}

// ---- what a group does at each tick

void Group::forgive(int64_t ns) {
  for (auto& p : peers_)
    if (p && p->heard_ns) p->heard_ns += ns;
}

void Group::tick() {
  inbox_->heartbeat.fetch_add(1, std::memory_order_relaxed);
  for (int p = 0; p < size_; ++p)
    if (p != rank_ && peers_[size_t(p)]->control) tick_remote(p);
  int64_t now = now_ns(), since = waiting_since_.load(std::memory_order_relaxed);
  if (since && (now - since > int64_t(soft_deadline() * 1e9) || has_stopped_peer(now))) watch(since);
  // Headers of a peer may have arrived that no collective of this rank waits for.
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || running_ || !queue_.empty()) return;
  try {
    for (int p = 0; p < size_; ++p)
      if (p != rank_ && peers_[size_t(p)]->verified < next_) verify(p, next_);
  } catch (const Error&) {
    return;  // the next operation raises it
  }
}

// True if a rank of this host is stopped by a signal: its heartbeat stands still, and the kernel says so.
bool Group::has_stopped_peer(int64_t now) {
  constexpr int64_t kSilence = 1'000'000'000;
  for (auto& p : peers_) {
    if (!p || !p->inbox || p->dead.load()) continue;
    uint64_t heartbeat = (*p->inbox)->heartbeat.load(std::memory_order_relaxed);
    if (heartbeat != p->heartbeat || !p->heard_ns) {
      p->heartbeat = heartbeat;
      p->heard_ns = now;
    } else if (now - p->heard_ns > kSilence && process_state(p->pid) == 'T') {
      return true;
    }
  }
  return false;
}

void Group::tick_remote(int rank) {
  Peer& p = *peers_[size_t(rank)];
  if (p.dead.load()) return;
  std::unique_lock lock(control_mutex_);
  p.control->try_send("h", 1);
  int64_t now = now_ns();
  if (!p.heard_ns) p.heard_ns = now;
  while (true) {
    std::span<const char> there = p.control->peek();
    if (there.empty()) break;
    p.heard_ns = now;
    if (there[0] == 'a') {
      uint32_t n;
      if (there.size() < 5) break;
      std::memcpy(&n, there.data() + 1, 4);
      if (there.size() < 5 + size_t(n) && n < 4096) break;
      inbox_.set_abort({there.data() + 5, std::min<size_t>(n, there.size() - 5)});
      p.control->consume(std::min<size_t>(there.size(), 5 + size_t(n)));
      continue;
    }
    if (there[0] == 'l') p.left = true;
    p.control->consume(1);
  }
  bool is_closed = p.control->is_closed(), is_silent = now - p.heard_ns > silence_limit();
  if (is_silent && !is_closed) p.control->reset();
  lock.unlock();
  if (is_silent) mark_dead(rank, unreachable());
  else if (is_closed) mark_dead(rank, "died (its connection was closed)");
}

// Prints once for each collective which ranks have not come to it.
void Group::watch(int64_t since) {
  uint64_t sequence = inbox_->started.load() - 1;
  if (warned_ == sequence) return;
  warned_ = sequence;
  const Record& own = inbox_->records[sequence % kRecords];
  std::string text = "[facula.distributed] rank " + std::to_string(rank_) + " of group " + name_ +
                     " waits for " + std::to_string((now_ns() - since) / 1'000'000'000) +
                     " s in collective " + std::to_string(sequence) + ", " +
                     distributed::name(Kind(own.kind)) + " at " + own.site + "\n";
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    const Peer& peer = *peers_[size_t(p)];
    text += "  " + who(p) + ": ";
    if (peer.dead.load()) {
      text += peer.how + "\n";
      continue;
    }
    if (!peer.inbox) {
      text += "alive on another host\n";
      continue;
    }
    uint64_t started = (*peer.inbox)->started.load(), finished = (*peer.inbox)->finished.load();
    text += process_state(peer.pid) == 'T' ? "stopped by a signal" : "alive";
    if (started > finished) {
      const Record& theirs = (*peer.inbox)->records[(started - 1) % kRecords];
      text += ", in collective " + std::to_string(started - 1) + ", " + distributed::name(Kind(theirs.kind)) +
              " at " + theirs.site;
    } else if (finished) {
      const Record& theirs = (*peer.inbox)->records[(finished - 1) % kRecords];
      text += ", last completed " + std::to_string(finished - 1) + ", " +
              distributed::name(Kind(theirs.kind)) + " at " + theirs.site;
    } else {
      text += ", has called no collective";
    }
    text += "\n";
  }
  std::fputs(text.c_str(), stderr);
}

std::string Group::records() const {
  std::string text = "[";
  for (int r = 0; r < size_; ++r) {
    const Inbox* inbox = r == rank_ ? &inbox_ : peers_[size_t(r)]->inbox.get();
    if (inbox) append_records(text, *inbox->operator->());
  }
  return text + "]";
}

}  // namespace facula::distributed
