// A double of NCCL for tests: its interface on host memory, for processes of one host. Each rank writes what it gives to
// its part of a shared file, waits for the others, and reads theirs. Operations of one communicator run one after
// the other; those between ncclGroupStart and ncclGroupEnd run together at the end.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kRanks = 16, kSlot = 1 << 22 };
typedef struct {
  char bytes[128];
} ncclUniqueId;
typedef struct {
  atomic_int joined, arrived, round, left;
  size_t sizes[kRanks][kRanks];  // bytes of the messages that wait, by sender and receiver
  char data[kRanks][kSlot];
} Shared;
typedef struct {
  Shared* shared;
  int rank, size;
  char path[160];
} Communicator;
typedef Communicator* ncclComm_t;
typedef struct {
  int is_send, peer;
  void* data;
  size_t bytes;
  ncclComm_t communicator;
} Message;

int facula_nccl_host_memory = 1;
static _Thread_local Message messages[256];
static _Thread_local int message_count, depth;

static size_t size_of(int kind) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[kind];
}

static void wait_for_all(ncclComm_t c) {
  int round = atomic_load(&c->shared->round);
  if (atomic_fetch_add(&c->shared->arrived, 1) + 1 == c->size) {
    atomic_store(&c->shared->arrived, 0);
    atomic_store(&c->shared->round, round + 1);
    return;
  }
  while (atomic_load(&c->shared->round) == round) sched_yield();
}

int ncclGetVersion(int* version) {
  *version = 22800;
  return 0;
}
const char* ncclGetErrorString(int status) {
  static const char* texts[] = {"no error",        "unhandled cuda error", "unhandled system error",
                                "internal error", "invalid argument",     "invalid usage"};
  return status >= 0 && status < 6 ? texts[status] : "unknown";
}
int ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 0, sizeof *id);
  snprintf(id->bytes, sizeof id->bytes, "/dev/shm/nccl_double_%d_%p", (int)getpid(), (void*)id);
  return 0;
}
int ncclCommInitRank(ncclComm_t* result, int size, ncclUniqueId id, int rank) {
  if (size > kRanks || rank < 0 || rank >= size) return 4;
  int file = open(id.bytes, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared))) return 2;
  ncclComm_t c = calloc(1, sizeof *c);
  c->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  c->rank = rank, c->size = size;
  strcpy(c->path, id.bytes);
  atomic_fetch_add(&c->shared->joined, 1);
  while (atomic_load(&c->shared->joined) < size) sched_yield();
  *result = c;
  return 0;
}
int ncclCommDestroy(ncclComm_t c) {
  if (atomic_fetch_add(&c->shared->left, 1) + 1 == c->size) unlink(c->path);
  munmap(c->shared, sizeof(Shared));
  free(c);
  return 0;
}
int ncclCommAbort(ncclComm_t c) {
  unlink(c->path);
  return 0;
}

#define COMBINE(type)                                                                  \
  for (size_t i = 0; i < n; ++i) {                                                     \
    type *a = (type*)to + i, b = ((const type*)from)[i];                               \
    *a = op == 1 ? *a * b : op == 2 ? (*a > b ? *a : b) : op == 3 ? (*a < b ? *a : b) : *a + b; \
  }
static int combine(void* to, const void* from, size_t n, int kind, int op) {
  switch (kind) {
    case 0: COMBINE(int8_t) return 0;
    case 1: COMBINE(uint8_t) return 0;
    case 2: COMBINE(int32_t) return 0;
    case 4: COMBINE(int64_t) return 0;
    case 7: COMBINE(float) return 0;
    case 8: COMBINE(double) return 0;
    default: return 4;
  }
}
static void divide(void* to, size_t n, int kind, int by) {
  if (kind == 7)
    for (size_t i = 0; i < n; ++i) ((float*)to)[i] /= (float)by;
  else if (kind == 8)
    for (size_t i = 0; i < n; ++i) ((double*)to)[i] /= by;
}

// Every rank gives `bytes` bytes; `to` becomes the reduction of [offset, offset + n elements) of all.
static int reduced(const void* from, void* to, size_t bytes, size_t offset, size_t n, int kind, int op, ncclComm_t c) {
  if (bytes > kSlot) return 4;
  memcpy(c->shared->data[c->rank], from, bytes);
  wait_for_all(c);
  int status = 0;
  if (to) {
    memcpy(to, c->shared->data[0] + offset, n * size_of(kind));
    for (int r = 1; r < c->size && !status; ++r) status = combine(to, c->shared->data[r] + offset, n, kind, op);
    if (op == 4) divide(to, n, kind, c->size);
  }
  wait_for_all(c);
  return status;
}
int ncclAllReduce(const void* from, void* to, size_t n, int kind, int op, ncclComm_t c, void* stream) {
  (void)stream;
  return reduced(from, to, n * size_of(kind), 0, n, kind, op, c);
}
int ncclReduce(const void* from, void* to, size_t n, int kind, int op, int root, ncclComm_t c, void* stream) {
  (void)stream;
  return reduced(from, c->rank == root ? to : NULL, n * size_of(kind), 0, n, kind, op, c);
}
int ncclReduceScatter(const void* from, void* to, size_t n, int kind, int op, ncclComm_t c, void* stream) {
  (void)stream;
  size_t bytes = n * size_of(kind);
  return reduced(from, to, bytes * (size_t)c->size, bytes * (size_t)c->rank, n, kind, op, c);
}
int ncclBroadcast(const void* from, void* to, size_t n, int kind, int root, ncclComm_t c, void* stream) {
  (void)stream;
  size_t bytes = n * size_of(kind);
  if (bytes > kSlot) return 4;
  if (c->rank == root) memcpy(c->shared->data[root], from, bytes);
  wait_for_all(c);
  memcpy(to, c->shared->data[root], bytes);
  wait_for_all(c);
  return 0;
}
int ncclAllGather(const void* from, void* to, size_t n, int kind, ncclComm_t c, void* stream) {
  (void)stream;
  size_t bytes = n * size_of(kind);
  if (bytes > kSlot) return 4;
  memcpy(c->shared->data[c->rank], from, bytes);
  wait_for_all(c);
  for (int r = 0; r < c->size; ++r) memcpy((char*)to + (size_t)r * bytes, c->shared->data[r], bytes);
  wait_for_all(c);
  return 0;
}

// Messages: the slot of a sender is divided among the receivers.
static int transfer(void) {
  const size_t part = kSlot / kRanks;
  for (int is_send = 1; is_send >= 0; --is_send)
    for (int k = 0; k < message_count; ++k) {
      Message* m = &messages[k];
      if (m->is_send != is_send) continue;
      Shared* s = m->communicator->shared;
      int from = is_send ? m->communicator->rank : m->peer, to = is_send ? m->peer : m->communicator->rank;
      if (m->bytes > part) return 4;
      volatile size_t* size = &s->sizes[from][to];
      while (is_send ? *size != 0 : *size == 0) sched_yield();
      char* place = s->data[from] + (size_t)to * part;
      if (is_send) {
        memcpy(place, m->data, m->bytes);
        atomic_thread_fence(memory_order_seq_cst);
        *size = m->bytes;
      } else {
        if (*size != m->bytes) return 4;
        atomic_thread_fence(memory_order_seq_cst);
        memcpy(m->data, place, m->bytes);
        *size = 0;
      }
    }
  message_count = 0;
  return 0;
}
int ncclGroupStart(void) {
  ++depth;
  return 0;
}
int ncclGroupEnd(void) { return --depth ? 0 : transfer(); }
static int message(int is_send, void* data, size_t bytes, int peer, ncclComm_t c) {
  if (message_count == 256) return 5;
  messages[message_count++] = (Message){is_send, peer, data, bytes, c};
  return depth ? 0 : transfer();
}
int ncclSend(const void* from, size_t n, int kind, int peer, ncclComm_t c, void* stream) {
  (void)stream;
  return message(1, (void*)from, n * size_of(kind), peer, c);
}
int ncclRecv(void* to, size_t n, int kind, int peer, ncclComm_t c, void* stream) {
  (void)stream;
  return message(0, to, n * size_of(kind), peer, c);
}
