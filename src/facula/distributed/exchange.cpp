#include "facula/distributed/exchange.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "facula/base/interrupt.h"

namespace facula::distributed {

namespace {
constexpr size_t kPadding = 64;  // payloads are padded, so that no element wraps around the end of a ring
constexpr size_t kChunk = 128 << 10;  // of a pipelined reduction
constexpr size_t kDirect = 32 << 10;  // an all_reduce up to this size sends all elements to all ranks
constexpr char kZeros[kPadding] = {};
constexpr int kSocketSpins = 20;

size_t padded(size_t bytes) { return (bytes + kPadding - 1) / kPadding * kPadding; }
}  // namespace

// ---- waiting

Waiting::Waiting(Group& group, int lane, const Call& call)
    : group_(group),
      lane_(lane),
      spins_(group.spins_[0]),
      call_(call),
      end_ns_(now_ns() + int64_t(std::min(call.timeout, 1e9) * 1e9)) {
  for (auto& p : group.peers_)
    if (p && !p->inbox) has_sockets_ = true;
  if (has_sockets_)
    spins_ = std::min(spins_, kSocketSpins);  // a round asks the kernel, and takes microseconds
}

void Waiting::pause(int round) {
  if (round < 400) __builtin_ia32_pause();
  else sched_yield();
}

void Waiting::check() {
  check_interrupt();
  std::string reason = group_.inbox_.abort_text();
  runtime_check(reason.empty(), distributed::name(call_.kind)) << reason;
  if (now_ns() <= end_ns_) return;
  group_.fail(group_.who(group_.rank_) + ": Timed out waiting " +
              std::to_string(int64_t(call_.timeout * 1000)) + "ms for " + distributed::name(call_.kind) +
              " operation to complete");
}

void Waiting::wait_for_sockets(const std::function<int(int)>& wants) {
  std::vector<pollfd> sockets;
  bool shared = false;
  for (int p = 0; p < group_.size_; ++p) {
    if (p == group_.rank_) continue;
    int events = wants(p);
    if (!events) continue;
    int descriptor = group_.peers_[size_t(p)]->links[lane_]->descriptor();
    if (descriptor < 0) shared = true;
    else sockets.push_back({descriptor, short(events), 0});
  }
  timespec limit{0, shared ? 200'000 : 20'000'000};
  ppoll(sockets.data(), sockets.size(), &limit, nullptr);
}

// ---- the transfers of each collective

Exchange::Exchange(Group& group, const Call& call, uint64_t sequence)
    : group_(group), call_(call), sequence_(sequence), peers_(size_t(group.size())) {
  Header h{};
  h.magic = Header::kMagic;
  h.kind = call.kind;
  h.reduction = call.reduction;
  h.dtype = call.dtype;
  h.root = call.root;
  h.sequence = sequence;
  h.rank_of_sizes = uint8_t(std::min<size_t>(call.sizes.size(), 255));
  for (size_t d = 0; d < call.sizes.size(); ++d) {
    if (d < 4) h.sizes[d] = call.sizes[d];
    else h.sizes[3] = h.sizes[3] * 1000003 + call.sizes[d];
  }
  for (int p = 0; p < group.size(); ++p) {
    if (p == group.rank()) continue;
    peers_[size_t(p)].header = h;
    add_out(p, reinterpret_cast<const char*>(&peers_[size_t(p)].header), sizeof h);
  }
  group.history_.push_back(h);
  plan();
  for (int p = 0; p < group.size(); ++p)
    if (p != group.rank()) finish_payload(p);
}

void Exchange::add_out(int peer, const char* data, size_t bytes, int chunk) {
  if (bytes) peers_[size_t(peer)].out.push_back({data, bytes, chunk});
}
void Exchange::add_in(int peer, char* data, size_t bytes, int chunk) {
  if (bytes) peers_[size_t(peer)].in.push_back({data, bytes, chunk});
}

// Writes the number of bytes to the header and pads the streams.
void Exchange::finish_payload(int peer) {
  Peer& p = peers_[size_t(peer)];
  size_t out = 0, in = 0;
  for (const Out& o : p.out) out += o.bytes;
  for (const In& i : p.in) in += i.bytes;
  out -= sizeof(Header);
  p.header.payload = out;
  p.expected = in;
  add_out(peer, kZeros, padded(out) - out);
  add_in(peer, nullptr, padded(in) - in);
}

void Exchange::plan() {
  int rank = group_.rank(), n = group_.size();
  bool is_root = call_.root == rank;
  switch (call_.kind) {
    case Kind::all_reduce: plan_all_reduce(); break;
    case Kind::reduce:
      if (is_root) plan_reduction(call_.input[0], call_.output[0].data, call_.input[0].data);
      else send(call_.root, call_.input[0]);
      break;
    case Kind::reduce_scatter:
      for (int p = 0; p < n; ++p)
        if (p != rank) send(p, call_.input[size_t(p)]);
      plan_reduction(call_.output[0], call_.output[0].data, call_.input[size_t(rank)].data);
      break;
    default: plan_payloads();
  }
}

// The collectives without a reduction.
void Exchange::plan_payloads() {
  int rank = group_.rank(), n = group_.size();
  bool is_root = call_.root == rank;
  auto out = [&](int p) { return call_.input[call_.input.size() == 1 ? 0 : size_t(p)]; };
  auto receive = [&](int p, const Buffer& b) { add_in(p, b.data, b.bytes); };
  for (int p = 0; p < n; ++p) {
    if (p == rank) continue;
    switch (call_.kind) {
      case Kind::broadcast:
        if (is_root) send(p, call_.input[0]);
        else if (p == call_.root) receive(p, call_.output[0]);
        break;
      case Kind::all_gather:
      case Kind::all_to_all:
        send(p, out(p));
        receive(p, call_.output[size_t(p)]);
        break;
      case Kind::gather:
        if (is_root) receive(p, call_.output[size_t(p)]);
        else if (p == call_.root) send(p, call_.input[0]);
        break;
      case Kind::scatter:
        if (is_root) send(p, call_.input[size_t(p)]);
        else if (p == call_.root) receive(p, call_.output[0]);
        break;
      default: break;
    }
  }
  copy_own();
}

// Copies the part that a rank sends to itself.
void Exchange::copy_own() {
  size_t rank = size_t(group_.rank());
  auto copy = [](const Buffer& to, const Buffer& from) {
    if (to.bytes && to.data != from.data) std::memmove(to.data, from.data, to.bytes);
  };
  bool is_root = call_.root == group_.rank();
  if (call_.kind == Kind::all_gather || (call_.kind == Kind::gather && is_root))
    copy(call_.output[rank], call_.input[0]);
  if (call_.kind == Kind::all_to_all) copy(call_.output[rank], call_.input[rank]);
  if (call_.kind == Kind::scatter && is_root) copy(call_.output[0], call_.input[rank]);
}

// Every other rank sends as many bytes as `from_each` has, which are reduced with `own`.
void Exchange::plan_reduction(const Buffer& from_each, char* to, const char* own) {
  for (size_t begin = 0; begin < from_each.bytes; begin += kChunk) {
    size_t bytes = std::min(kChunk, from_each.bytes - begin);
    for (int p = 0; p < group_.size(); ++p)
      if (p != group_.rank()) add_in(p, nullptr, bytes, int(chunks_.size()));
    chunks_.push_back({to + begin, own + begin, bytes, 0});
  }
}

void Exchange::plan_all_reduce() {
  size_t bytes = 0;
  for (const Buffer& b : call_.input) bytes += b.bytes;
  for (size_t i = 0; i < call_.input.size(); ++i) {
    const Buffer &b = call_.input[i], &result = call_.output[i];
    if (bytes > kDirect) {
      plan_blocks(b, result);
      continue;
    }
    for (int p = 0; p < group_.size(); ++p)
      if (p != group_.rank()) send(p, b);
    plan_reduction(b, result.data, b.data);
    reduce_after_sending_ = true;
  }
}

// Each rank reduces one block. It receives the contributions to that block chunk by chunk, and sends every reduced
// chunk to all ranks. In shared memory it follows behind the next contribution, while it is in the cache. Over TCP it
// follows behind all contributions, which then never wait for an answer of the other host.
void Exchange::plan_blocks(const Buffer& in, const Buffer& result) {
  int rank = group_.rank(), n = group_.size();
  size_t block = padded((in.bytes + size_t(n) - 1) / size_t(n));
  auto begin = [&](int p) { return std::min(in.bytes, size_t(p) * block); };
  auto count = [&](int p) { return (begin(p + 1) - begin(p) + kChunk - 1) / kChunk; };
  auto piece = [&](int p, size_t c) {
    return Buffer{nullptr, std::min(kChunk, begin(p + 1) - begin(p) - c * kChunk)};
  };
  size_t own_chunks = count(rank), first = chunks_.size();
  for (size_t c = 0; c < own_chunks; ++c) {
    size_t at = begin(rank) + c * kChunk;
    chunks_.push_back({result.data + at, in.data + at, piece(rank, c).bytes, 0});
  }
  for (int p = 0; p < n; ++p) {
    if (p == rank) continue;
    size_t theirs = count(p), most = std::max(own_chunks, theirs);
    size_t lag = group_.is_local(p) ? 1 : most;
    for (size_t c = 0; c < most + lag; ++c) {
      size_t done = c - lag;  // wraps around before there is a result, to more than any count
      if (c < theirs) add_out(p, in.data + begin(p) + c * kChunk, piece(p, c).bytes);
      if (done < own_chunks)
        add_out(p, chunks_[first + done].to, chunks_[first + done].bytes, int(first + done));
      if (c < own_chunks) add_in(p, nullptr, chunks_[first + c].bytes, int(first + c));
      if (done < theirs) add_in(p, result.data + begin(p) + done * kChunk, piece(p, done).bytes);
    }
  }
}

// ---- progress

bool Exchange::send_some(int peer) {
  Peer& p = peers_[size_t(peer)];
  Link& link = *group_.peers_[size_t(peer)]->links[0];
  bool moved = false;
  while (p.next_out < p.out.size()) {
    const Out& o = p.out[p.next_out];
    size_t ready = o.chunk < 0 ? o.bytes : chunks_[size_t(o.chunk)].done;
    if (ready > p.out_done) {
      size_t n = link.try_send(o.data + p.out_done, ready - p.out_done);
      p.out_done += n;
      if (n) moved = true;
    }
    if (p.out_done < o.bytes) break;
    p.out_done = 0;
    ++p.next_out;
  }
  return moved;
}

bool Exchange::receive_some(int peer) {
  Peer& p = peers_[size_t(peer)];
  if (!p.verified) {
    if (!group_.verify(peer, sequence_ + 1)) return false;
    p.verified = true;
    uint64_t sent = group_.peers_[size_t(peer)]->partial.payload;
    if (sent != p.expected)
      group_.fail("collective " + std::to_string(sequence_) + ", " + name(call_.kind) + ": " +
                  group_.who(peer) + " sends " + std::to_string(sent) + " bytes to " +
                  group_.who(group_.rank()) + ", which expects " + std::to_string(p.expected));
    if (p.in.empty()) return true;
  }
  Link& link = *group_.peers_[size_t(peer)]->links[0];
  bool moved = false;
  while (p.next_in < p.in.size() && p.in[p.next_in].chunk < 0) {
    const In& i = p.in[p.next_in];
    char padding[kPadding];
    size_t n = link.try_receive(i.data ? i.data + p.in_done : padding, i.bytes - p.in_done);
    p.in_done += n;
    if (n) moved = true;
    if (p.in_done < i.bytes) break;
    p.in_done = 0;
    ++p.next_in;
  }
  return moved;
}

// Reduces the elements of the next chunk that have arrived from all ranks.
bool Exchange::reduce_some() {
  bool moved = false;
  size_t element = size_t(itemsize(call_.dtype));
  const void* sources[1024];
  int n = group_.size(), rank = group_.rank();
  while (next_chunk_ < chunks_.size()) {
    Chunk& c = chunks_[next_chunk_];
    size_t bytes = c.bytes - c.done;
    for (int p = 0; p < n; ++p) {
      if (p == rank) {
        sources[p] = c.own + c.done;
        continue;
      }
      Peer& peer = peers_[size_t(p)];
      if (!peer.verified || peer.in[peer.next_in].chunk != int(next_chunk_)) return moved;
      std::span<const char> there = group_.peers_[size_t(p)]->links[0]->peek();
      bytes = std::min(bytes, there.size() / element * element);
      sources[p] = there.data();
    }
    if (!bytes) return moved;
    reduce(call_.reduction, call_.dtype, c.to + c.done, sources, n, bytes / element);
    moved = true;
    c.done += bytes;
    for (int p = 0; p < n; ++p) {
      if (p == rank) continue;
      group_.peers_[size_t(p)]->links[0]->consume(bytes);
      if (c.done == c.bytes) ++peers_[size_t(p)].next_in;
    }
    if (c.done == c.bytes) ++next_chunk_;
  }
  return moved;
}

bool Exchange::is_sent() const {
  for (const Peer& p : peers_)
    if (p.next_out < p.out.size()) return false;
  return true;
}

bool Exchange::step() {
  bool moved = false;
  int n = group_.size(), rank = group_.rank();
  for (int p = 0; p < n; ++p)
    if (p != rank && send_some(p)) moved = true;
  for (int p = 0; p < n; ++p)
    if (p != rank && receive_some(p)) moved = true;
  if (next_chunk_ < chunks_.size() && (!reduce_after_sending_ || is_sent()) && reduce_some()) moved = true;
  return moved;
}

bool Exchange::is_done() const {
  for (size_t p = 0; p < peers_.size(); ++p)
    if (int(p) != group_.rank() && !peers_[p].is_done()) return false;
  return true;
}

bool Exchange::is_verified() const {
  for (size_t p = 0; p < peers_.size(); ++p)
    if (int(p) != group_.rank() && !peers_[p].verified) return false;
  return true;
}

bool Exchange::may_leave() {
  if (call_.kind == Kind::barrier) return false;
  int64_t now = now_ns();
  if (!done_ns_) done_ns_ = now;
  return now - done_ns_ > int64_t(agreement_wait() * 1e9);
}

int Exchange::wants(int peer) const {
  const Peer& p = peers_[size_t(peer)];
  bool sends = p.next_out < p.out.size() &&
               (p.out[p.next_out].chunk < 0 || chunks_[size_t(p.out[p.next_out].chunk)].done > p.out_done);
  bool receives = p.next_in < p.in.size() || !p.verified;
  return (sends ? POLLOUT : 0) | (receives ? POLLIN : 0);
}

void Exchange::run() {
  Waiting waiting(group_, 0, call_);
  while (true) {
    bool moved = step();
    if (is_done() && (is_verified() || may_leave())) return;
    if (moved) {
      waiting.moved();
      continue;
    }
    for (int p = 0; p < group_.size(); ++p) {
      if (p == group_.rank() || (peers_[size_t(p)].is_done() && peers_[size_t(p)].verified)) continue;
      auto& peer = *group_.peers_[size_t(p)];
      if (!peer.dead.load(std::memory_order_acquire) && !peer.links[0]->is_closed()) continue;
      if (step()) break;  // it sent this before it died
      group_.hear_last_words(p);
      if (peer.links[0]->is_closed()) group_.mark_dead(p, "died (its connection was closed)");
      group_.fail(std::string(distributed::name(call_.kind)) + ": " + group_.who(p) + " " + peer.how);
    }
    waiting.idle([&] { return step(); }, [&](int p) { return wants(p); });
  }
}

}  // namespace facula::distributed
