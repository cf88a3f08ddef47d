// TCP connections that OpenSSL encrypts, if the environment asks for it as for PyTorch's Gloo:
// GLOO_DEVICE_TRANSPORT=TCP_TLS, with the PEM files GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY, ..._CERT and ..._CA_FILE. Both sides
// show a certificate that the authority has signed. libssl is opened when the first connection needs it.
#pragma once
#include <memory>

#include "facula/distributed/link.h"

namespace facula::distributed {

bool uses_tls();
// Takes ownership of a connected socket. The handshake happens with the first bytes; `accepts`: as the server.
std::unique_ptr<TcpLink> make_link(int socket, bool accepts);

}  // namespace facula::distributed
