#include "facula/codegen/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace facula::codegen {

const std::string& build_id() {
  static const auto& id = *new std::string([] {
    struct Search {
      uintptr_t inside;
      std::string id;
    } search{reinterpret_cast<uintptr_t>(&build_id), {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {
          auto& s = *static_cast<Search*>(to);
          bool ours = false;
          for (int k = 0; k < info->dlpi_phnum; ++k) {
            auto& h = info->dlpi_phdr[k];
            uintptr_t begin = info->dlpi_addr + h.p_vaddr;
            ours |= h.p_type == PT_LOAD && s.inside >= begin && s.inside < begin + h.p_memsz;
          }
          if (!ours) return 0;
          auto rounded = [](size_t n) { return (n + 3) / 4 * 4; };
          for (int k = 0; k < info->dlpi_phnum; ++k) {
            auto& h = info->dlpi_phdr[k];
            if (h.p_type != PT_NOTE) continue;
            auto* note = reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr);
            for (auto* end = note + h.p_memsz; note + sizeof(ElfW(Nhdr)) <= end;) {
              ElfW(Nhdr) n;
              std::memcpy(&n, note, sizeof n);
              auto* name = note + sizeof n;
              auto* text = name + rounded(n.n_namesz);
              if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !std::memcmp(name, "GNU", 4))
                s.id.assign(text, n.n_descsz);
              note = text + rounded(n.n_descsz);
            }
          }
          return 1;
        },
        &search);
    return search.id;
  }());
  return id;
}

}  // namespace facula::codegen
