#include "facula/distributed/tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>

#include "facula/base/error.h"

namespace facula::distributed {

namespace {

// Functions of libssl and libcrypto that are used here.
#define FACULA_TLS_FUNCTIONS(_)                                                                              \
  _(TLS_method) _(SSL_CTX_new) _(SSL_CTX_ctrl) _(SSL_CTX_set_verify) _(SSL_CTX_load_verify_locations)        \
  _(SSL_CTX_use_certificate_chain_file) _(SSL_CTX_use_PrivateKey_file) _(SSL_CTX_check_private_key)          \
  _(SSL_new) _(SSL_free) _(SSL_set_fd) _(SSL_set_connect_state) _(SSL_set_accept_state) _(SSL_read)          \
  _(SSL_write) _(SSL_get_error) _(ERR_get_error) _(ERR_error_string_n) _(ERR_clear_error)

struct Library {
#define FACULA_TLS_MEMBER(f) decltype(&::f) f = nullptr;
  FACULA_TLS_FUNCTIONS(FACULA_TLS_MEMBER)
  Library() {
    void* file = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    runtime_check(file, "init_process_group") << "TCP_TLS needs libssl.so.3: " << dlerror();
#define FACULA_TLS_LOAD(f)                                                                              \
  f = reinterpret_cast<decltype(&::f)>(dlsym(file, #f));                                                \
  runtime_check(f, "init_process_group") << "libssl.so.3 lacks " #f;
    FACULA_TLS_FUNCTIONS(FACULA_TLS_LOAD)
  }
};
const Library& library() {
  static const Library loaded;
  return loaded;
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

std::string last_error() {
  char text[256] = "unknown error";
  if (unsigned long code = library().ERR_get_error()) library().ERR_error_string_n(code, text, sizeof text);
  return text;
}

SSL_CTX* context() {
  static SSL_CTX* const shared = [] {
    const Library& l = library();
    SSL_CTX* c = l.SSL_CTX_new(l.TLS_method());
    runtime_check(c, "init_process_group") << "TLS: " << last_error();
    l.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
    l.SSL_CTX_ctrl(c, SSL_CTRL_MODE, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                   nullptr);
    std::string prefix = "GLOO_DEVICE_TRANSPORT_TCP_TLS_", key = variable((prefix + "PKEY").c_str()),
                certificate = variable((prefix + "CERT").c_str()),
                ca = variable((prefix + "CA_FILE").c_str());
    value_check(!key.empty() && !certificate.empty() && !ca.empty(), "init_process_group")
        << "GLOO_DEVICE_TRANSPORT=TCP_TLS needs the files " << prefix << "PKEY, _CERT and _CA_FILE";
    runtime_check(l.SSL_CTX_use_certificate_chain_file(c, certificate.c_str()) == 1, "init_process_group")
        << "TLS certificate " << certificate << ": " << last_error();
    bool fits = l.SSL_CTX_use_PrivateKey_file(c, key.c_str(), SSL_FILETYPE_PEM) == 1 &&
                l.SSL_CTX_check_private_key(c) == 1;
    runtime_check(fits, "init_process_group") << "TLS private key " << key << ": " << last_error();
    runtime_check(l.SSL_CTX_load_verify_locations(c, ca.c_str(), nullptr) == 1, "init_process_group")
        << "TLS certificate authority " << ca << ": " << last_error();
    l.SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    return c;
  }();
  return shared;
}

class TlsLink final : public TcpLink {
 public:
  TlsLink(int socket, bool accepts) : TcpLink(socket), ssl_(library().SSL_new(context())) {
    runtime_check(ssl_, "init_process_group") << "TLS: " << last_error();
    library().SSL_set_fd(ssl_, socket);
    if (accepts) library().SSL_set_accept_state(ssl_);
    else library().SSL_set_connect_state(ssl_);
  }
  ~TlsLink() override { library().SSL_free(ssl_); }

 protected:
  ssize_t write_some(const void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    library().ERR_clear_error();
    return result(library().SSL_write(ssl_, data, int(std::min(bytes, kMost))));
  }
  ssize_t read_some(void* to, size_t bytes) override {
    std::lock_guard lock(mutex_);
    library().ERR_clear_error();
    return result(library().SSL_read(ssl_, to, int(std::min(bytes, kMost))));
  }

 private:
  static constexpr size_t kMost = 1 << 20;
  // The result as recv() and send() return it.
  ssize_t result(int n) {
    if (n > 0) return n;
    int error = library().SSL_get_error(ssl_, n);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
  }
  std::mutex mutex_;  // the control connection is written to by several threads
  SSL* ssl_;
};

}  // namespace

bool uses_tls() {
  static const bool asked = variable("GLOO_DEVICE_TRANSPORT") == "TCP_TLS";
  return asked;
}

std::unique_ptr<TcpLink> make_link(int socket, bool accepts) {
  if (!uses_tls()) return std::make_unique<TcpLink>(socket);
  return std::make_unique<TlsLink>(socket, accepts);
}

}  // namespace facula::distributed
