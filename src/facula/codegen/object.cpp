#include "facula/codegen/object.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "facula/base/fork.h"
#include "facula/codegen/maps.h"
#include "facula/loop/tiles.h"

namespace facula::codegen {
namespace {

const void* resolve(std::string_view symbol) {
  struct Entry {
    std::string_view name;
    const void* address;
  };
  if (const void* map = map_named(symbol)) return map;
  static const Entry table[] = {
      {"facula_multiply_tile", reinterpret_cast<const void*>(&loop::facula_multiply_tile)},
      {"facula_multiply_byte_tile", reinterpret_cast<const void*>(&loop::facula_multiply_byte_tile)},
      {"memcpy",
       reinterpret_cast<const void*>(static_cast<void* (*)(void*, const void*, size_t)>(std::memcpy))},
      {"memset", reinterpret_cast<const void*>(static_cast<void* (*)(void*, int, size_t)>(std::memset))},
      {"memmove",
       reinterpret_cast<const void*>(static_cast<void* (*)(void*, const void*, size_t)>(std::memmove))},
  };
  for (auto& e : table)
    if (e.name == symbol) return e.address;
  return nullptr;
}

// Executable memory. One region is mapped twice, writable and executable, so that no page is ever both. If the system
// refuses that, each kernel gets separate pages, which become executable when they are complete.
struct Piece {
  char* write;
  char* run;
  size_t bytes;
  bool own = false;
};

class Arena {
 public:
  std::optional<Piece> take(size_t bytes) {
    std::lock_guard lock(mutex_);
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > kRegion) return alone(bytes);
    // The region is shared memory: a forked child must not write into its parent's.
    if ((owner_ != getpid() || used_ + bytes > size_) && !grow()) return alone(bytes);
    Piece p{write_ + used_, run_ + used_, bytes};
    used_ += bytes;
    return p;
  }
  // Returns the memory of an object that was refused; memory between other objects stays unused.
  void give_back(const Piece& p) {
    std::lock_guard lock(mutex_);
    if (p.own) munmap(p.write, p.bytes);
    else if (owner_ == getpid() && p.write + p.bytes == write_ + used_) used_ -= p.bytes;
  }

 private:
  static constexpr size_t kRegion = 1 << 20;
  bool grow() {
    int fd = memfd_create("facula-kernels", MFD_CLOEXEC);
    if (fd < 0) return false;
    void *w = MAP_FAILED, *x = MAP_FAILED;
    if (ftruncate(fd, kRegion) == 0) {
      w = mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      x = mmap(nullptr, kRegion, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (w == MAP_FAILED || x == MAP_FAILED) {
      if (w != MAP_FAILED) munmap(w, kRegion);
      if (x != MAP_FAILED) munmap(x, kRegion);
      return false;
    }
    write_ = static_cast<char*>(w);
    run_ = static_cast<char*>(x);
    size_ = kRegion;
    used_ = 0;
    owner_ = getpid();
    return true;
  }
  static std::optional<Piece> alone(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return std::nullopt;
    return Piece{static_cast<char*>(p), static_cast<char*>(p), bytes, true};
  }
  TableMutex mutex_;
  char *write_ = nullptr, *run_ = nullptr;
  size_t used_ = 0, size_ = 0;
  pid_t owner_ = 0;
};

Arena& arena() {
  static Arena* a = new Arena;
  return *a;
}

class Loader {
 public:
  explicit Loader(std::string_view bytes) : bytes_(bytes) {}

  KernelFn load() {
    Elf64_Ehdr h;
    if (!get(0, h) || std::memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != ELFDATA2LSB || h.e_type != ET_REL || h.e_machine != EM_X86_64 ||
        h.e_shentsize != sizeof(Elf64_Shdr) || h.e_shnum > 1024 || bytes_.size() > kLargestObject)
      return nullptr;
    sections_.resize(h.e_shnum);
    for (size_t i = 0; i < sections_.size(); ++i)
      if (!get(h.e_shoff + i * sizeof(Elf64_Shdr), sections_[i])) return nullptr;
    if (!lay_out() || !read_symbols()) return nullptr;
    auto piece = arena().take(total_);
    if (!piece) return nullptr;
    piece_ = *piece;
    KernelFn f = place();
    if (!f) arena().give_back(piece_);
    return f;
  }

 private:
  static constexpr size_t kAbsent = ~size_t(0);
  static constexpr size_t kStub = 16;  // jmp *[rip + 2]; 2 bytes; address

  KernelFn place() {
    for (size_t i = 0; i < sections_.size(); ++i)
      if (place_[i] != kAbsent && sections_[i].sh_type == SHT_PROGBITS && sections_[i].sh_size)
        std::memcpy(piece_.write + place_[i], bytes_.data() + sections_[i].sh_offset, sections_[i].sh_size);
    for (auto& s : sections_) {
      if (s.sh_type == SHT_REL) return nullptr;
      if (s.sh_type == SHT_RELA && !relocate(s)) return nullptr;
    }
    auto entry = address_of(entry_);
    if (!entry || !(sections_[symbols_[entry_].st_shndx].sh_flags & SHF_EXECINSTR)) return nullptr;
    if (piece_.own && mprotect(piece_.run, total_, PROT_READ | PROT_EXEC)) return nullptr;
    return reinterpret_cast<KernelFn>(*entry);
  }

  bool inside(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  template <class T>
  bool get(uint64_t offset, T& to) const {
    if (!inside(offset, sizeof(T))) return false;
    std::memcpy(&to, bytes_.data() + offset, sizeof(T));
    return true;
  }

  bool lay_out() {
    place_.assign(sections_.size(), kAbsent);
    for (size_t i = 0; i < sections_.size(); ++i) {
      auto& s = sections_[i];
      if (!(s.sh_flags & SHF_ALLOC)) continue;
      if (s.sh_flags & SHF_WRITE && s.sh_size) return false;  // kernels have no writable data
      if (s.sh_type != SHT_PROGBITS || !inside(s.sh_offset, s.sh_size)) {
        if (s.sh_size && s.sh_type != SHT_X86_64_UNWIND) return false;
        continue;
      }
      uint64_t align = s.sh_addralign ? s.sh_addralign : 1;
      if (align > 64 || (align & (align - 1))) return false;
      total_ = (total_ + align - 1) / align * align;
      place_[i] = total_;
      total_ += s.sh_size;
    }
    return total_ < kLargestObject;
  }

  bool read_symbols() {
    for (auto& s : sections_) {
      if (s.sh_type != SHT_SYMTAB) continue;
      if (!symbols_.empty() || s.sh_link >= sections_.size() || !inside(s.sh_offset, s.sh_size)) return false;
      auto& strings = sections_[s.sh_link];
      if (!inside(strings.sh_offset, strings.sh_size)) return false;
      names_ = bytes_.substr(strings.sh_offset, strings.sh_size);
      symbols_.resize(s.sh_size / sizeof(Elf64_Sym));
      if (!symbols_.empty())
        std::memcpy(symbols_.data(), bytes_.data() + s.sh_offset, symbols_.size() * sizeof(Elf64_Sym));
    }
    total_ = (total_ + 15) / 16 * 16;
    stubs_.assign(symbols_.size(), kAbsent);
    for (size_t i = 1; i < symbols_.size(); ++i) {
      auto& y = symbols_[i];
      if (y.st_shndx == SHN_UNDEF) {
        stubs_[i] = total_;
        total_ += kStub;
      } else if (name_of(y) == "facula_kernel") {
        entry_ = i;
      }
    }
    return entry_ != 0;
  }

  std::string_view name_of(const Elf64_Sym& y) const {
    if (y.st_name >= names_.size()) return {};
    auto rest = names_.substr(y.st_name);
    size_t end = rest.find('\0');
    return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
  }

  // The address of symbol i when the code runs.
  std::optional<uint64_t> address_of(size_t i) {
    if (i == 0 || i >= symbols_.size()) return std::nullopt;
    auto& y = symbols_[i];
    if (y.st_shndx == SHN_UNDEF) {
      const void* target = resolve(name_of(y));
      if (!target) return std::nullopt;
      char* stub = piece_.write + stubs_[i];
      static constexpr unsigned char kJump[] = {0xff, 0x25, 0x02, 0, 0, 0, 0x0f, 0x0b};
      std::memcpy(stub, kJump, sizeof kJump);
      std::memcpy(stub + 8, &target, 8);
      return uint64_t(piece_.run + stubs_[i]);
    }
    if (y.st_shndx >= sections_.size() || place_[y.st_shndx] == kAbsent ||
        y.st_value > sections_[y.st_shndx].sh_size)
      return std::nullopt;
    return uint64_t(piece_.run + place_[y.st_shndx]) + y.st_value;
  }

  bool relocate(const Elf64_Shdr& s) {
    if (s.sh_info >= sections_.size() || !inside(s.sh_offset, s.sh_size)) return false;
    size_t where = place_[s.sh_info];
    if (where == kAbsent) return true;  // in a section that is not loaded
    uint64_t room = sections_[s.sh_info].sh_size;
    for (uint64_t k = 0; k + sizeof(Elf64_Rela) <= s.sh_size; k += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      get(s.sh_offset + k, r);
      auto symbol = address_of(ELF64_R_SYM(r.r_info));
      if (!symbol) return false;
      uint64_t value = *symbol + uint64_t(r.r_addend), at = uint64_t(piece_.run + where) + r.r_offset;
      bool eight = ELF64_R_TYPE(r.r_info) == R_X86_64_64 || ELF64_R_TYPE(r.r_info) == R_X86_64_PC64;
      uint64_t size = eight ? 8 : 4;
      if (r.r_offset > room || size > room - r.r_offset) return false;
      switch (ELF64_R_TYPE(r.r_info)) {
        case R_X86_64_64: break;
        case R_X86_64_PC64:
        case R_X86_64_PC32:
        case R_X86_64_PLT32: value -= at; break;
        default: return false;
      }
      if (!eight && int64_t(value) != int32_t(value)) return false;
      std::memcpy(piece_.write + where + r.r_offset, &value, size);
    }
    return true;
  }

  std::string_view bytes_, names_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<size_t> place_, stubs_;
  size_t total_ = 0, entry_ = 0;
  Piece piece_{};
};

}  // namespace

KernelFn load_object(std::string_view object) { return Loader(object).load(); }

}  // namespace facula::codegen
