#include "facula/distributed/inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "facula/base/error.h"
#include "facula/distributed/call.h"

namespace facula::distributed {

namespace {

constexpr uint64_t kMagic = 0x46414355'4c415802;
constexpr size_t kRingStride = sizeof(Ring) + kRingBytes;
constexpr size_t kPage = 4096;

size_t header_bytes() { return (sizeof(InboxHeader) + kPage - 1) / kPage * kPage; }
size_t total_bytes(int size) { return header_bytes() + size_t(kLanes) * size_t(size) * kRingStride; }

}  // namespace

Inbox::Inbox(std::string_view token, int rank, int size) : bytes_(total_bytes(size)) {
  descriptor_ = memfd_create("facula-group", MFD_CLOEXEC);
  runtime_check(descriptor_ >= 0 && ftruncate(descriptor_, off_t(bytes_)) == 0, "init_process_group")
      << "cannot create " << bytes_ << " bytes of shared memory: " << std::strerror(errno);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  runtime_check(memory != MAP_FAILED, "init_process_group")
      << "cannot map " << bytes_ << " bytes of shared memory: " << std::strerror(errno);
  header_ = new (memory) InboxHeader();
  token.copy(header_->token, kTokenBytes);
  header_->rank = rank;
  header_->size = size;
  header_->pid = int32_t(getpid());
  header_->magic = kMagic;
}

std::unique_ptr<Inbox> Inbox::open(std::string_view token, pid_t pid, int descriptor, int rank, int size) {
  std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat facts;
  size_t bytes = total_bytes(size);
  void* memory = MAP_FAILED;
  if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && size_t(facts.st_size) == bytes)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return nullptr;
  auto* header = static_cast<InboxHeader*>(memory);
  bool is_it = header->magic == kMagic && header->rank == rank && header->size == size &&
               header->pid == int32_t(pid) &&
               std::string_view(header->token, kTokenBytes) == token.substr(0, kTokenBytes);
  if (!is_it) {
    munmap(memory, bytes);
    return nullptr;
  }
  std::unique_ptr<Inbox> inbox(new Inbox());
  inbox->header_ = header;
  inbox->bytes_ = bytes;
  return inbox;
}

Inbox::~Inbox() {
  if (header_) munmap(static_cast<void*>(header_), bytes_);
  if (descriptor_ >= 0) close(descriptor_);
}

Ring* Inbox::ring(int lane, int from) const {
  size_t index = size_t(lane) * size_t(header_->size) + size_t(from);
  return reinterpret_cast<Ring*>(reinterpret_cast<char*>(header_) + header_bytes() + index * kRingStride);
}

void Inbox::set_abort(std::string_view text) {
  uint32_t none = 0;
  if (!header_->abort_state.compare_exchange_strong(none, 1)) return;
  size_t n = std::min(text.size(), sizeof header_->abort_text - 1);
  text.copy(header_->abort_text, n);
  header_->abort_text[n] = 0;
  header_->abort_state.store(2, std::memory_order_release);
  for (Bell& bell : header_->bells) bell.ring();
}

std::string Inbox::abort_text() const {
  if (header_->abort_state.load(std::memory_order_acquire) != 2) return "";
  return {header_->abort_text, strnlen(header_->abort_text, sizeof header_->abort_text)};
}

void append_records(std::string& text, const InboxHeader& header) {
  for (const Record& e : header.records) {
    uint64_t sequence = e.sequence.load(std::memory_order_acquire);
    if (!sequence) continue;
    std::string site;
    for (const char* c = e.site; *c; ++c) {
      if (*c == '"' || *c == '\\') site += '\\';
      site += *c;
    }
    const char* how = e.failed ? "failed" : e.finished_ns ? "completed" : "started";
    text += std::string(text.size() > 1 ? ", " : "") + "{\"rank\": " + std::to_string(header.rank) +
            ", \"sequence\": " + std::to_string(sequence - 1) + ", \"operation\": \"" + name(Kind(e.kind)) +
            "\", \"dtype\": \"" + facula::name(DType(e.dtype)) + "\", \"bytes\": " + std::to_string(e.bytes) +
            ", \"state\": \"" + how + "\", \"started_ns\": " + std::to_string(e.started_ns) +
            ", \"finished_ns\": " + std::to_string(e.finished_ns) + ", \"site\": \"" + site + "\"}";
  }
}

namespace {
// Calls f with the memory of a rank, which is mapped for that time.
template <class F>
void with_memory(const std::string& path, F&& f) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  runtime_check(file >= 0, "status") << path << ": " << std::strerror(errno);
  struct stat facts;
  void* memory = MAP_FAILED;
  if (fstat(file, &facts) == 0 && size_t(facts.st_size) >= sizeof(InboxHeader))
    memory = mmap(nullptr, sizeof(InboxHeader), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  runtime_check(memory != MAP_FAILED, "status") << path << " is not the memory of a rank";
  const auto& header = *static_cast<const InboxHeader*>(memory);
  bool is_it = header.magic == kMagic;
  if (is_it) f(header);
  munmap(memory, sizeof(InboxHeader));
  runtime_check(is_it, "status") << path << " is not the memory of a rank";
}
}  // namespace

std::string read_records(const std::string& path) {
  std::string text = "[";
  with_memory(path, [&](const InboxHeader& h) { append_records(text, h); });
  return text + "]";
}

RankStatus read_status(const std::string& path) {
  RankStatus status{};
  with_memory(path, [&](const InboxHeader& h) {
    status.token.assign(h.token, strnlen(h.token, kTokenBytes));
    status.rank = h.rank, status.size = h.size, status.pid = h.pid;
    status.finished = h.finished.load();
    uint64_t started = h.started.load(), count = 0, total = 0;
    status.waiting = started > status.finished;
    if (started) {
      const Record& last = h.records[(started - 1) % kRecords];
      status.operation = name(Kind(last.kind));
      status.site.assign(last.site, strnlen(last.site, sizeof last.site));
      timespec t;
      clock_gettime(CLOCK_MONOTONIC, &t);
      status.waiting_s = double(t.tv_sec) + double(t.tv_nsec) * 1e-9 - double(last.started_ns) * 1e-9;
    }
    for (const Record& r : h.records)
      if (r.sequence.load() && r.finished_ns) ++count, total += r.finished_ns - r.started_ns;
    status.mean_ms = count ? double(total) / double(count) * 1e-6 : 0;
  });
  return status;
}

}  // namespace facula::distributed
