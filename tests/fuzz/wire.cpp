// What another rank or a stranger sends to a group over TCP: an operation of the group completes with the right result
// or raises RuntimeError, and no descriptor is left open.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "facula/distributed/group.h"
#include "fuzz.h"

using namespace facula;
using namespace facula::distributed;

namespace {

constexpr int kStreams = kLanes + 1;
const std::string kToken(kTokenBytes, 't');

template <class T>
std::string bytes_of_value(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

int connected_to(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0 || connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address))
    fuzz::broken("a connection", std::strerror(errno));
  return s;
}

void send_to(int s, std::string_view data) {
  if (send(s, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;  // it was refused
}

// Rank 1 of a group as a host sees it that runs rank 0: its three connections, and a stranger.
struct Other {
  int streams[kStreams], stranger;
  explicit Other(int port) : stranger(connected_to(port)) {
    for (int k = 0; k < kStreams; ++k) {
      streams[k] = connected_to(port);
      send_to(streams[k], kToken + bytes_of_value(int32_t(1)) + bytes_of_value(int32_t(k)));
    }
  }
  ~Other() {
    for (int s : streams) close(s);
    close(stranger);
  }
};

Call reduction(float* numbers) {
  Call call;
  call.kind = Kind::all_reduce;
  call.dtype = DType::Float32;
  call.timeout = 5;
  call.sizes = {4};
  call.input = call.output = {{reinterpret_cast<char*>(numbers), 16}};
  return call;
}

Call receive(float* numbers) {
  Call call = reduction(numbers);
  call.kind = Kind::recv;
  call.root = 1;
  call.input.clear();
  return call;
}

void check_descriptors() {
  static int runs = 0, before = 0;
  if (++runs % 100) return;
  int open = 0;
  for (auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) open += !entry.path().empty();
  if (!before) before = open;
  if (open > before) fuzz::broken("every descriptor is closed", std::to_string(open) + " are open");
}

// The first byte chooses a connection: collectives, messages, control, a stranger.
void run(std::string_view data) {
  if (data.empty()) return;
  int stream = int(static_cast<unsigned char>(data[0])) % (kStreams + 1);
  data.remove_prefix(1);
  fuzz::raises_only(ErrorType::RuntimeError, [&] {
    auto group = make_ref<Group>("fuzz", 0, 2, kToken, "127.0.0.1");
    std::string address = group->address();
    Other other(std::atoi(address.substr(address.rfind('|') + 1).c_str()));
    if (stream == kStreams) send_to(other.stranger, data);
    group->open({address, "elsewhere|1|0|127.0.0.1|1"});
    group->connect({{true, false}, {false, true}}, 5);
    if (stream < kStreams) send_to(other.streams[stream], data);
    for (int s : other.streams) shutdown(s, SHUT_WR);
    float numbers[4] = {1, 2, 3, 4};
    if (stream == 1) {
      auto work = make_ref<Work>(receive(numbers));
      group->submit_message(work);
      if (!work->wait(10)) fuzz::broken("a message arrives or raises", "");
      if (work->error()) std::rethrow_exception(work->error());
      return;
    }
    Work work(reduction(numbers));
    group->run(work);
  });
  check_descriptors();
}

std::string header(Kind kind, uint64_t sequence, uint64_t payload) {
  Header h{};
  h.magic = Header::kMagic;
  h.kind = kind;
  h.dtype = DType::Float32;
  h.rank_of_sizes = 1;
  h.sizes[0] = 4;
  h.sequence = sequence;
  h.payload = payload;
  return bytes_of_value(h);
}

std::string message(uint64_t bytes, int64_t tag) {
  uint64_t words[8] = {0xfac01a65u | uint64_t(DType::Float32) << 32, uint64_t(tag), bytes};
  return bytes_of_value(words);
}

std::vector<std::string> seeds() {
  std::string payload(64, '\0'), text = "rank 1 failed";
  auto on = [](int stream, const std::string& bytes) { return std::string(1, char(stream)) + bytes; };
  return {on(0, header(Kind::all_reduce, 0, 16) + payload),
          on(0, header(Kind::broadcast, 0, 16) + payload),
          on(0, header(Kind::all_reduce, 1, 16) + header(Kind::barrier, 1, 0)),
          on(0, header(Kind::all_reduce, 0, uint64_t(1) << 60)),
          on(1, message(16, 0) + payload),
          on(1, message(16, 7) + payload + message(16, 0) + payload),
          on(1, message(uint64_t(1) << 62, 7) + payload),
          on(1, message(uint64_t(1) << 40, 7) + payload),
          on(2, "hhh" + std::string("a") + bytes_of_value(uint32_t(text.size())) + text),
          on(2, "l"),
          on(2, "a\xff\xff\xff\xff" + text),
          on(3, kToken + bytes_of_value(int32_t(1)) + bytes_of_value(int32_t(0))),
          on(3, kToken + bytes_of_value(int32_t(1 << 30)) + bytes_of_value(int32_t(-1))),
          on(3, "GET / HTTP/1.1\r\n\r\n")};
}

}  // namespace

FACULA_FUZZ("wire", run, seeds)
