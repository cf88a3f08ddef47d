// The registrations of a library while it is loaded: all of them or none.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/extend/library.h"

namespace facula::extend {

struct Transaction {
  // Blocks and classes of the library, until it is loaded completely.
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<Class>> classes;

  // Runs the blocks and registers the classes; if it raises, nothing stays registered. It may be called again.
  void commit();
  // The transaction of this thread; null outside of loads.
  static Transaction*& current();

  // ---- while blocks run
  void defined(const std::string& full_name);
  // Kernels are registered after all definitions: `check` raises, or returns a function that cannot fail.
  using Apply = std::function<void()>;
  void later(std::function<Apply()> check) { later_.push_back(std::move(check)); }

 private:
  std::vector<Apply> run_blocks(std::vector<std::string>& claimed);
  std::vector<std::function<Apply()>> later_;
};

// Registers classes, all or none.
void register_classes(const std::vector<std::unique_ptr<Class>>& classes);

// Records that a namespace has its block of definitions; raises RuntimeError if it already has one.
void claim_namespace(const std::string& ns);
void release_namespace(const std::string& ns);

}  // namespace facula::extend
