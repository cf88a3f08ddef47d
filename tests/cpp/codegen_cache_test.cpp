// The kernel cache: what is found where, and that no damage, lack of rights or race costs more than a
// compilation.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "again.h"
#include "facula/base/interrupt.h"
#include "facula/base/parallel.h"
#include "facula/base/settings.h"
#include "facula/codegen/background.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/object.h"
#include "facula/codegen/store.h"

using namespace facula;
using namespace facula::loop;
namespace fs = std::filesystem;

namespace {

// y[i] = x[i] + c: another kernel for every c.
Nest add_constant(double c) {
  Nest n;
  n.name = "add_constant";
  n.buffers = {{DType::Float32, false, "x"}, {DType::Float32, true, "y"}};
  n.params = 1;
  n.tasks = constant(int64_t(1), DType::Int64);
  n.cost = param(0);
  Statement s{Statement::Kind::store};
  s.buffer = 1;
  s.values = {load(0, DType::Float32, {index(1)}) + Scalar(c)};
  s.offset = index(1);
  Statement l{Statement::Kind::loop};
  l.var = 1;
  l.loop = LoopKind::vector;
  l.extent = param(0);
  l.body = {s};
  n.body = {l};
  return n;
}

std::shared_ptr<const loop::LazyNest> nest_of(double c) {
  return std::make_shared<const loop::LazyNest>(std::make_shared<const Nest>(add_constant(c)));
}

bool works(double c) {
  std::vector<float> x(21), y(21);
  for (size_t k = 0; k < 21; ++k) x[k] = float(k);
  void* buffers[] = {x.data(), y.data()};
  int64_t n = 21;
  codegen::launch(*codegen::kernel(add_constant(c)), buffers, &n, "add");
  for (size_t k = 0; k < 21; ++k)
    if (y[k] != float(k) + float(c)) return false;
  return true;
}

// Runs `f` in a child, which has an empty cache in memory, and returns its exit status.
template <class F>
int in_child(F&& f) {
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

enum Source { memory_, shipped, disk, compiled, failed };
// Where a fresh process finds the kernel.
int source_of(double c) {
  return in_child([&] {
    auto before = codegen::cache_stats();
    if (!works(c)) return int(failed);
    auto s = codegen::cache_stats();
    return int(s.compiled > before.compiled           ? compiled
               : s.disk_hits > before.disk_hits       ? disk
               : s.shipped_hits > before.shipped_hits ? shipped
                                                      : memory_);
  });
}

class CodegenCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "facula-cache-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    mutable_settings().cache_dir = (root_ / "kernels").string();
    mutable_settings().shipped_cache = (root_ / "shipped").string();
  }
  void TearDown() override {
    codegen::record_kernels_to("");
    mutable_settings().cache_dir = mutable_settings().shipped_cache = "";
    fs::permissions(root_, fs::perms::owner_all, fs::perm_options::add);
    fs::remove_all(root_);
  }
  fs::path folder() const { return root_ / "kernels"; }
  fs::path only_file() const {
    std::vector<fs::path> all;
    for (auto& e : fs::directory_iterator(folder())) all.push_back(e.path());
    EXPECT_EQ(all.size(), 1u);
    return all.at(0);
  }
  void rewrite(const fs::path& p, const std::function<void(std::string&)>& change) {
    std::ifstream in(p, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), {});
    in.close();
    change(text);
    std::ofstream(p, std::ios::binary | std::ios::trunc) << text;
  }
  fs::path root_;
};

TEST_F(CodegenCache, FindsOnDiskWhatAnotherProcessCompiled) {
  EXPECT_EQ(source_of(1), compiled);
  EXPECT_EQ(source_of(1), disk);
  EXPECT_EQ(source_of(2), compiled);
  struct stat s;
  ASSERT_EQ(stat(folder().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0700u);
}

TEST_F(CodegenCache, RemovesWhatWasUsedLeastRecently) {
  using codegen::Stored;
  std::string folder = codegen::user_folder();
  ASSERT_EQ(folder, (root_ / "kernels").string());
  auto name = [](int k) { return std::string(62, '0') + std::to_string(10 + k); };
  constexpr Stored kinds[] = {Stored::kernel, Stored::plan, Stored::sequence};
  for (int k = 0; k < 12; ++k)
    codegen::write_entry(folder, kinds[k % 3], name(k), std::string(100, char('a' + k)),
                         codegen::Owner::user);
  std::ofstream(root_ / "kernels" / "notes.txt") << "of the user";
  std::ofstream(root_ / "kernels" / (name(50) + ".o.1.2")) << "what a process that was killed left";
  auto old = [&](const fs::path& p, int days) {
    timespec t{time(nullptr) - days * 86400, 0}, both[] = {t, t};
    ASSERT_EQ(utimensat(AT_FDCWD, p.c_str(), both, 0), 0) << p;
  };
  for (auto& e : fs::directory_iterator(root_ / "kernels")) {
    std::string file = e.path().filename();
    if (file[0] == '0') old(e.path(), 100 - std::stoi(file.substr(62, 2)));
  }
  auto read = [&](int k) { return codegen::read_entry(folder, kinds[k % 3], name(k), codegen::Owner::user); };
  EXPECT_EQ(read(0), std::string(100, 'a'));  // the oldest one, which is in use from here on
  codegen::evict(folder, {.bytes = 1 << 20, .entries = 12});
  // All entries and the user's file. The test does not read them, because an entry that is read counts as used.
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "kernels"), fs::directory_iterator()), 13);
  codegen::evict(folder, {.bytes = 1 << 20, .entries = 8});
  for (int k = 0; k < 12; ++k) EXPECT_EQ(read(k).empty(), k > 0 && k < 7) << k;
  codegen::evict(folder, {.bytes = 1, .entries = 8});
  for (int k = 0; k < 12; ++k) EXPECT_EQ(read(k), "") << k;
  std::vector<std::string> left;
  for (auto& e : fs::directory_iterator(root_ / "kernels")) left.push_back(e.path().filename());
  EXPECT_EQ(left, std::vector<std::string>{"notes.txt"});
}

TEST_F(CodegenCache, KeepsKernelsInMemory) {
  auto* first = codegen::kernel(add_constant(1001));
  EXPECT_EQ(codegen::kernel(add_constant(1001)), first);
  Nest renamed = add_constant(1001);
  renamed.name = "another name";
  EXPECT_EQ(codegen::kernel(renamed), first) << "names are not part of the identity";
}

TEST_F(CodegenCache, HearsCtrlCBeforeAKernelIsMade) {
  struct Interrupted {};
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it is asked for every 20 ms
  auto before = codegen::cache_stats().compiled;
  set_interrupt_check([] { throw Interrupted(); });
  EXPECT_THROW(codegen::kernel(add_constant(1002)), Interrupted);
  set_interrupt_check(nullptr);
  EXPECT_EQ(codegen::cache_stats().compiled, before);
  EXPECT_TRUE(works(1002));
  EXPECT_EQ(codegen::cache_stats().compiled, before + 1);
}

TEST_F(CodegenCache, ReplacesDamagedTruncatedAndForeignFiles) {
  const std::function<void(std::string&)> damages[] = {
      [](std::string& t) { t[t.size() / 2] = char(t[t.size() / 2] ^ 0x40); },
      [](std::string& t) { t.back() = char(t.back() ^ 1); },
      [](std::string& t) { t.resize(t.size() - 7); },
      [](std::string& t) { t.resize(20); },
      [](std::string& t) { t.clear(); },
      [](std::string& t) { t += "more"; },
      [](std::string& t) { t[0] = 'X'; },
      [](std::string& t) {
        t[9] = char(t[9] == 'a' ? 'b' : 'a');
      },  // the file of another kernel under this name
      [](std::string& t) {
        t = "not an object at all, but longer than its header: " + std::string(200, 'x');
      }};
  EXPECT_EQ(source_of(3), compiled);
  for (auto& damage : damages) {
    rewrite(only_file(), damage);
    EXPECT_EQ(source_of(3), compiled);
    EXPECT_EQ(source_of(3), disk) << "the damaged file was not replaced";
  }
  fs::path file = only_file();
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(source_of(3), compiled) << "a file that others can write was trusted";
  EXPECT_EQ(source_of(3), disk);
  fs::path elsewhere = root_ / "elsewhere.o";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  EXPECT_EQ(source_of(3), compiled) << "a link was followed";
  EXPECT_EQ(source_of(3), disk);
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(source_of(3), compiled) << "a pipe was read";
  EXPECT_EQ(source_of(3), disk);
  fs::resize_file(file, uint64_t(1) << 40);
  EXPECT_EQ(source_of(3), compiled) << "a file larger than any kernel was read";
  EXPECT_EQ(source_of(3), disk);
}

TEST_F(CodegenCache, RefusesAFolderThatOthersCanWrite) {
  fs::create_directory(folder());
  for (auto p : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(folder(), fs::perms::owner_all | p);
    EXPECT_EQ(codegen::cache_folder(), "");
    EXPECT_EQ(source_of(4), compiled);
    EXPECT_EQ(source_of(4), compiled);
  }
  EXPECT_TRUE(fs::is_empty(folder()));
  fs::permissions(folder(), fs::perms::owner_all);
  EXPECT_EQ(codegen::cache_folder(), folder());
}

TEST_F(CodegenCache, RefusesAFolderBelowOneThatOthersCanWrite) {
  fs::path parent = root_ / "parent";
  mutable_settings().cache_dir = (parent / "a" / "kernels").string();
  EXPECT_EQ(source_of(40), compiled);
  fs::permissions(parent, fs::perms::owner_all | fs::perms::others_write);
  EXPECT_EQ(source_of(40), compiled);
  fs::permissions(parent, fs::perms::owner_all | fs::perms::others_write | fs::perms::sticky_bit);
  EXPECT_EQ(source_of(40), disk) << "nobody replaces another's folder in a sticky one";
  fs::permissions(parent, fs::perms::owner_all | fs::perms::group_write);
  EXPECT_EQ(source_of(40), disk) << "root's groups, and a user's own";
  fs::permissions(parent, fs::perms::owner_all);
  fs::create_directory_symlink(parent, root_ / "link");
  mutable_settings().cache_dir = (root_ / "link" / "a" / "kernels").string();
  EXPECT_EQ(source_of(40), disk) << "a link above the folder leads to it";
}

TEST_F(CodegenCache, RefusesAShippedFolderOfOtherUsers) {
  if (getuid()) GTEST_SKIP() << "only root can give files away";
  fs::path ship = root_ / "shipped";
  ASSERT_EQ(in_child([&] {
              codegen::record_kernels_to(ship.string());
              return works(41) ? 0 : 1;
            }),
            0);
  fs::path file = fs::directory_iterator(ship)->path();
  mutable_settings().cache_dir = "/proc/facula/kernels";
  ASSERT_EQ(source_of(41), shipped);
  for (auto& path : {file, ship, root_}) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_EQ(source_of(41), compiled) << path;
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
    if (path == root_) continue;
    for (auto p : {fs::perms::group_write, fs::perms::others_write}) {
      fs::permissions(path, p, fs::perm_options::add);
      EXPECT_EQ(source_of(41), compiled) << path;
      fs::permissions(path, p, fs::perm_options::remove);
    }
  }
  EXPECT_EQ(source_of(41), shipped);
}

TEST_F(CodegenCache, WorksWithoutAFolder) {
  std::ofstream(folder()) << "a file where the folder should be";
  EXPECT_EQ(source_of(5), compiled);
  mutable_settings().cache_dir = "/proc/facula/kernels";
  EXPECT_EQ(codegen::cache_folder(), "");
  EXPECT_EQ(source_of(5), compiled);
}

TEST_F(CodegenCache, WorksInAFolderThatCannotBeWritten) {
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(source_of(6), compiled);
}

TEST_F(CodegenCache, ServesManyProcessesAndThreadsAtOnce) {
  std::vector<pid_t> children;
  fflush(nullptr);
  for (int k = 0; k < 4; ++k) {
    pid_t child = fork();
    if (child == 0) {
      auto before = codegen::cache_stats();
      std::atomic<int> bad{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
          for (int c = 0; c < 4; ++c)
            if (!works(10 + (c + t) % 4)) ++bad;
        });
      for (auto& t : threads) t.join();
      auto after = codegen::cache_stats();
      _exit(bad || after.compiled + after.disk_hits - before.compiled - before.disk_hits != 4);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  size_t files = 0;
  for (auto& e : fs::directory_iterator(folder())) files += e.path().extension() == ".o" ? 1 : 100;
  EXPECT_EQ(files, 4u) << "or something was left beside the objects";
  EXPECT_EQ(source_of(10), disk);
}

TEST_F(CodegenCache, AChildForkedWhileAThreadCompilesCanDoTheSame) {
  std::atomic<int> newest{3000};
  std::atomic<bool> done{false};
  std::thread thread([&] {
    while (!done) codegen::kernel(add_constant(++newest));
  });
  for (int k = 0; k < 10; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(in_child([&] {
                alarm(20);
                return works(newest) ? 0 : 1;
              }),
              0);
  }
  done = true;
  thread.join();
}

TEST_F(CodegenCache, ShipsWhatWasRecorded) {
  EXPECT_EQ(in_child([&] {
              works(20);
              codegen::record_kernels_to((root_ / "shipped").string());
              return works(20) && works(21) ? 0 : 1;
            }),
            0);
  fs::remove_all(folder());
  EXPECT_EQ(source_of(20), shipped);
  EXPECT_EQ(source_of(21), shipped);
  EXPECT_EQ(source_of(22), compiled);
}

TEST_F(CodegenCache, RefusesMalformedObjects) {
  ASSERT_EQ(source_of(30), compiled);
  std::ifstream in(only_file(), std::ios::binary);
  std::string object((std::istreambuf_iterator<char>(in)), {});
  object.erase(0, codegen::kObjectHeader);
  ASSERT_NE(codegen::load_object(object), nullptr);
  EXPECT_EQ(codegen::load_object(""), nullptr);
  EXPECT_EQ(codegen::load_object("\x7f"
                                 "ELF"),
            nullptr);
  // No byte of the headers, tables and relocations may lead outside of the object.
  EXPECT_EQ(in_child([&] {
              for (size_t cut = 0; cut < object.size(); cut += 5)
                codegen::load_object(std::string_view(object).substr(0, cut));
              for (size_t at = 0; at < object.size(); ++at)
                for (unsigned char v : {0x00, 0x7f, 0xff}) {
                  std::string bad = object;
                  bad[at] = char(v);
                  codegen::load_object(bad);
                }
              return 0;
            }),
            0);
}

TEST_F(CodegenCache, RefusesAnUnknownCapability) {
  auto [status, text] = run_again("sse9", "CodegenCache.KeepsKernelsInMemory");
  EXPECT_NE(status, 0);
  EXPECT_NE(text.find("FACULA_CPU_CAPABILITY is \"sse9\""), std::string::npos) << text;
}

// ---- beside the program

class CodegenAhead : public CodegenCache {
 protected:
  void SetUp() override {
    CodegenCache::SetUp();
    set_num_threads(4);
    if (!codegen::background_threads()) GTEST_SKIP() << "one processor";
  }
  void TearDown() override {
    codegen::finish_background();
    set_num_threads(threads_);
    CodegenCache::TearDown();
  }
  static std::vector<std::shared_ptr<const loop::LazyNest>> nests_of(int from, int count) {
    std::vector<std::shared_ptr<const loop::LazyNest>> all;
    for (int k = 0; k < count; ++k) all.push_back(nest_of(from + k));
    return all;
  }
  int threads_ = num_threads();
};

TEST_F(CodegenAhead, MakesWhatIsExpected) {
  auto before = codegen::cache_stats();
  codegen::expect(nests_of(2001, 3));
  codegen::finish_background();
  EXPECT_EQ(codegen::cache_stats().compiled, before.compiled + 3);
  for (double c : {2001, 2002, 2003}) EXPECT_TRUE(works(c));
  EXPECT_EQ(codegen::cache_stats().compiled, before.compiled + 3);
  EXPECT_EQ(source_of(2002), memory_) << "a forked child has what its parent had";
}

TEST_F(CodegenAhead, MakesEachKernelOnceHoweverManyWantIt) {
  auto before = codegen::cache_stats();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      codegen::expect(nests_of(2011, 4));
      for (int k = 0; k < 4; ++k) right += works(2011 + (k + t) % 4);
    });
  for (auto& t : threads) t.join();
  codegen::finish_background();
  EXPECT_EQ(right, 16);
  EXPECT_EQ(codegen::cache_stats().compiled, before.compiled + 4);
}

TEST_F(CodegenAhead, DropsWhatAJobThrowsAndGoesOn) {
  Nest broken = add_constant(2021);
  broken.body[0].body[0].values = {local(99, DType::Float32)};
  auto nest = std::make_shared<const Nest>(broken);
  codegen::expect({std::make_shared<const loop::LazyNest>(nest), nest_of(2022)});
  codegen::run_in_background([] { throw std::runtime_error("dropped"); });
  codegen::finish_background();
  EXPECT_ANY_THROW(codegen::kernel(*nest)) << "who wants it is told";
  EXPECT_ANY_THROW(codegen::kernel(*nest)) << "each time";
  EXPECT_TRUE(works(2022));
}

TEST_F(CodegenAhead, LeavesAForkedChildToItself) {
  for (int from = 2100; from < 2150; from += 10) {
    codegen::expect(nests_of(from, 4));
    int status = in_child([&] {
      bool right = !codegen::background_threads();
      codegen::expect(nests_of(from, 4));
      for (int k = 0; k < 4; ++k) right &= works(from + k);
      return right ? 0 : 1;
    });
    EXPECT_EQ(status, 0);
    for (int k = 0; k < 4; ++k) EXPECT_TRUE(works(from + k));
  }
}

TEST_F(CodegenAhead, EndsWithTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the statement runs in a process of its own
  for (int delay : {0, 5, 40})
    EXPECT_EXIT(
        {
          codegen::expect(nests_of(2200, 8));
          std::this_thread::sleep_for(std::chrono::milliseconds(delay));
          std::exit(0);
        },
        testing::ExitedWithCode(0), "");
}

}  // namespace
