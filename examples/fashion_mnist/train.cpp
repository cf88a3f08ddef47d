// The C++ version of train.py: the same network on the same images, with bitwise equal losses for the same seed.
//
//   build/examples/fashion_mnist_train            # results in runs/fashion_mnist
//   build/examples/fashion_mnist_train --resume   # continue after an interruption; also what train.py began
#include <facula/facula.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace nn = facula::nn;
namespace data = facula::data;
namespace optim = facula::optim;
namespace io = facula::io;
using facula::Tensor;
using Images = data::TensorDataset<2>;

struct Net : nn::Module {
  nn::Sequential features =
      register_module("features",
                      nn::Sequential{nn::Conv2d(1, 32, 3, {.padding = 1}), nn::BatchNorm2d(32), nn::ReLU(),
                                     nn::MaxPool2d(2), nn::Conv2d(32, 64, 3, {.padding = 1}),
                                     nn::BatchNorm2d(64), nn::ReLU(), nn::MaxPool2d(2)});
  nn::Sequential classifier =
      register_module("classifier", nn::Sequential{nn::Flatten(), nn::Linear(64 * 7 * 7, 128), nn::ReLU(),
                                                   nn::Dropout(0.2), nn::Linear(128, 10)});
  Tensor operator()(const Tensor& x) const { return classifier(features(x)); }
};

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}

struct Options {
  std::filesystem::path data = "/usr/share/datasets/fashion-mnist", out = "runs/fashion_mnist";
  int64_t epochs = 4, seed = 0, limit = 0, stop_after = 0;  // limit 0: all images
  bool resume = false;
};

Options parse(int count, char** arguments) {
  Options o;
  for (int k = 1; k < count; ++k) {
    std::string name = arguments[k];
    if (name == "--resume") {
      o.resume = true;
      continue;
    }
    if (k + 1 == count) stop(name + " needs a value, or is unknown");
    std::string value = arguments[++k];
    int64_t number = std::strtoll(value.c_str(), nullptr, 10);
    if (name == "--data") o.data = value;
    else if (name == "--out") o.out = value;
    else if (name == "--epochs") o.epochs = number;
    else if (name == "--seed") o.seed = number;
    else if (name == "--limit") o.limit = number;
    else if (name == "--stop-after") o.stop_after = number;
    else
      stop(
          name +
          " is unknown; options are --data DIR, --out DIR, --epochs N, --seed N, --limit N, --stop-after N, --resume");
  }
  if (o.epochs < 1 || o.limit < 0 || o.limit == 1) stop("--epochs must be at least 1 and --limit at least 2");
  return o;
}

Images load(const Options& o, const std::string& name) {
  Tensor images = io::read_idx(o.data / (name + "-images-idx3-ubyte.gz"));
  Tensor labels = io::read_idx(o.data / (name + "-labels-idx1-ubyte.gz"));
  if (images.dim() != 3 || labels.dim() != 1 || images.size(0) != labels.size(0) || images.size(1) != 28 ||
      images.size(2) != 28)
    stop(o.data.string() + ": images and labels don't belong together");
  if (o.limit) {
    images = facula::slice(images, 0, 0, o.limit);
    labels = facula::slice(labels, 0, 0, o.limit);
  }
  Tensor pixels = facula::to(images, facula::DType::Float32);
  facula::div_(pixels, 255);  // followed by mean and standard deviation of the training images
  facula::sub_(pixels, 0.2860);
  facula::div_(pixels, 0.3530);
  return Images(facula::unsqueeze(pixels, 1), facula::to(labels, facula::DType::Int64));
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string thousands(double x) {
  std::string s = std::to_string(std::llround(x));
  for (int64_t at = int64_t(s.size()) - 3; at > 0; at -= 3) s.insert(size_t(at), ",");
  return s;
}

// A line that is rewritten on a terminal; elsewhere one line per quarter.
struct Progress {
  std::string title;
  int64_t images, done = 0, quarter = 0;
  double start = seconds(), shown = start;
  bool terminal = isatty(STDOUT_FILENO);

  void update(int64_t count, double loss, double accuracy) {
    done += count;
    double now = seconds();
    bool last = done == images;
    if (terminal ? now - shown < 0.1 && !last : 4 * done / images == quarter) return;
    shown = now;
    quarter = 4 * done / images;
    double rate = double(done) / (now - start);
    size_t filled = size_t(24 * done / images);
    std::string bar = std::string(filled, '#') + std::string(24 - filled, '.');
    std::printf("%s%s [%s] loss %.4f  accuracy %5.2f%%  %6s images/s  %3.0f s left%s", terminal ? "\r" : "",
                title.c_str(), bar.c_str(), loss, 100 * accuracy, thousands(rate).c_str(),
                double(images - done) / rate, terminal && !last ? "" : "\n");
    std::fflush(stdout);
  }
};

struct Result {
  double loss, accuracy;
};

Result train_epoch(const Net& model, const data::Loader<Images>& loader, optim::Optimizer& optimizer,
                   optim::LRScheduler& scheduler, Progress progress) {
  model.train();
  double total = 0;
  int64_t correct = 0, seen = 0;
  for (auto [images, labels] : loader) {
    optimizer.zero_grad();
    Tensor logits = model(images);
    Tensor loss = facula::cross_entropy(logits, labels);
    facula::backward(loss);
    optimizer.step();
    scheduler.step();
    double value = loss.item().to_double();
    if (!std::isfinite(value)) stop("the loss became " + std::to_string(value) + "; try another --seed");
    int64_t count = labels.size(0).concrete();
    total += value * double(count);
    correct += facula::sum(facula::argmax(logits.detached(), 1) == labels).item().to_int();
    seen += count;
    progress.update(count, total / double(seen), double(correct) / double(seen));
  }
  return {total / double(seen), double(correct) / double(seen)};
}

Result evaluate(const Net& model, const data::Loader<Images>& loader) {
  facula::NoGrad no_grad;
  model.eval();
  double total = 0;
  std::vector<Tensor> predicted;
  for (auto [images, labels] : loader) {
    Tensor logits = model(images);
    total += facula::cross_entropy(logits, labels, facula::nullopt, "sum").item().to_double();
    predicted.push_back(facula::argmax(logits, 1));
  }
  const Tensor& labels = loader.dataset().tensors[1];
  Tensor right = facula::to(facula::cat(predicted) == labels, facula::DType::Float32);
  return {total / double(loader.dataset().size()), facula::mean(right).item().to_double()};
}

void write_json(const std::filesystem::path& path, const io::List& history) {
  std::filesystem::path beside = path;
  beside.replace_extension(".tmp");
  {
    std::ofstream file(beside);
    for (size_t k = 0; k < history.size(); ++k) {
      file << (k ? "  },\n" : "[\n") << "  {\n";
      size_t left = history[k].size();
      for (auto& [key, value] : history[k].dict())
        file << "    \"" << key.string() << "\": " << io::to_string(value) << (--left ? ",\n" : "\n");
    }
    file << "  }\n]\n";
    if (!file.flush()) stop(beside.string() + " cannot be written");
  }
  std::filesystem::rename(beside, path);
}

int train(const Options& o) {
  std::filesystem::create_directories(o.out);
  auto checkpoint_path = o.out / "checkpoint.pt";

  facula::manual_seed(uint64_t(o.seed));
  Images train = load(o, "train"), test = load(o, "t10k");
  data::Loader train_loader(train, {.batch_size = 64, .shuffle = true, .drop_last = train.size() % 64 == 1});
  data::Loader test_loader(test, {.batch_size = 500});
  Net model;
  optim::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  optim::OneCycleLR scheduler(optimizer, 3e-3, {.epochs = o.epochs, .steps_per_epoch = train_loader.size()});
  io::Value run =
      io::Dict{{"epochs", o.epochs}, {"seed", o.seed}, {"limit", o.limit ? io::Value(o.limit) : io::Value()}};
  io::List history;

  if (o.resume) {
    if (!std::filesystem::exists(checkpoint_path))
      stop("there is no " + checkpoint_path.string() + " to resume from; run without --resume first");
    io::Value checkpoint = io::load(checkpoint_path);
    if (!(checkpoint["run"] == run))
      stop(checkpoint_path.string() + " belongs to a run with " + io::to_string(checkpoint["run"]) +
           ", not " + io::to_string(run) + "; give the same options");
    model.load_state_dict(checkpoint["model"]);
    optimizer.load_state_dict(checkpoint["optimizer"]);
    scheduler.load_state_dict(checkpoint["scheduler"]);
    facula::set_rng_state(checkpoint["rng_state"].tensor());
    history = checkpoint["history"].list();
  }

  int64_t last = o.stop_after ? std::min(o.epochs, o.stop_after) : o.epochs;
  for (int64_t epoch = int64_t(history.size()) + 1; epoch <= last; ++epoch) {
    double started = seconds();
    std::string title = "epoch " + std::to_string(epoch) + "/" + std::to_string(o.epochs);
    Result trained = train_epoch(model, train_loader, optimizer, scheduler, Progress{title, train.size()});
    double took = seconds() - started;
    Result tested = evaluate(model, test_loader);
    std::printf("%s: test loss %.4f, test accuracy %.2f%%, %.1f s\n", title.c_str(), tested.loss,
                100 * tested.accuracy, took);
    std::fflush(stdout);
    history.push_back(io::Dict{{"epoch", epoch},
                               {"loss", trained.loss},
                               {"accuracy", trained.accuracy},
                               {"test_loss", tested.loss},
                               {"test_accuracy", tested.accuracy},
                               {"seconds", took}});
    io::save(checkpoint_path, io::Dict{{"run", run},
                                       {"model", model.state_dict()},
                                       {"optimizer", optimizer.state_dict()},
                                       {"scheduler", scheduler.state_dict()},
                                       {"rng_state", facula::get_rng_state()},
                                       {"history", history}});
    write_json(o.out / "metrics.json", history);
  }
  std::printf("test accuracy %.2f%%; results in %s/\n", 100 * evaluate(model, test_loader).accuracy,
              o.out.c_str());
  return 0;
}

int main(int count, char** arguments) {
  try {
    return train(parse(count, arguments));
  } catch (const std::exception& error) { stop(error.what()); }
}
