// What a library registers while it is loaded: all of it or nothing.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/extend/library.h"

namespace facula::extend {

struct Transaction {
  // Blocks and classes wait here until the library is there as a whole.
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<Class>> classes;

  // Runs the blocks and registers the classes; raises, and nothing of it is there. It may be tried again.
  void commit();
  // The one that collects on this thread; null outside of loads.
  static Transaction*& current();

  // ---- while blocks run
  void defined(const std::string& full_name);
  // Kernels are given when all definitions are there: `check` raises or gives what cannot fail.
  using Apply = std::function<void()>;
  void later(std::function<Apply()> check) { later_.push_back(std::move(check)); }

 private:
  std::vector<Apply> run_blocks(std::vector<std::string>& whole);
  std::vector<std::function<Apply()>> later_;
};

// Registers classes, all or none.
void register_classes(const std::vector<std::unique_ptr<Class>>& made);

// Notes that a namespace has its one block with definitions; RuntimeError if it has one already.
void claim_namespace(const std::string& ns);
void release_namespace(const std::string& ns);

}  // namespace facula::extend
