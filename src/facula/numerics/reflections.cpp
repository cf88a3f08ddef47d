#include "facula/numerics/reflections.h"

#include <algorithm>
#include <vector>

#include "facula/numerics/column_strips.h"

namespace facula::numerics {

template <class T>
ReflectionBlock<T>::ReflectionBlock(int64_t rows, int64_t count, RowMajor<const T> a, const T* tau, T* room)
    : count_(count),
      near_(std::min(rows, kStrip)),
      far_(rows - near_),
      top_{room, kStrip},
      inverse_{room + kStrip * kStrip, kStrip},
      rest_(a.at(near_, 0)) {
  for (int64_t i = 0; i < near_; ++i) {
    T* row = top_[i];
    std::fill(row, row + kStrip, T(0));
    std::copy_n(a[i], std::min(i, count), row);
    if (i < count) row[i] = 1;
  }
  auto& in = strip_kernels<T>();
  std::fill_n(inverse_.data, count * kStrip, T(0));
  in.add_turned_product(count, padded(count), near_, read_only(top_), read_only(top_), inverse_);
  in.add_turned_product(count, padded(count), far_, rest_, rest_, inverse_);
  for (int64_t i = 0; i < count; ++i) inverse_[i][i] = T(1) / tau[i];  // infinite for tau = 0
}

template <class T>
void ReflectionBlock<T>::apply(Order order, int64_t columns, RowMajor<T> c) const {
  auto& in = strip_kernels<T>();
  alignas(64) T sums[kStrip * kStrip];
  RowMajor<T> w{sums, kStrip};
  for (int64_t i = 0; i < count_; ++i) std::fill_n(w[i], columns, T(0));
  in.add_turned_product(count_, columns, near_, read_only(top_), read_only(c), w);
  in.add_turned_product(count_, columns, far_, rest_, read_only(c.at(near_, 0)), w);
  in.solve({.upper = order == Order::forward, .unit = false}, count_, columns, read_only(inverse_), w);
  in.subtract_product(near_, columns, count_, read_only(top_), read_only(w), c);
  in.subtract_product(far_, columns, count_, rest_, read_only(w), c.at(near_, 0));
}

template <class T>
void Reflections<T>::finish() {
  take_turns(v.count(), 2.0 * double(v.rows()) * double(tau.size()) * kStrip, [&](int64_t k) {
    int64_t top = k * kStrip;
    blocks_.make(k, v.rows() - top, v.width(k), read_only(v[k].at(top, 0)), tau.data() + top);
  });
}
template <class T>
void Reflections<T>::apply(int64_t columns, RowMajor<T> c, int64_t blocks) const {
  for (int64_t k = std::min(blocks, v.count()); k-- > 0;)
    blocks_[k].apply(ReflectionBlock<T>::Order::forward, columns, c.at(k * kStrip, 0));
}

namespace {

template <class T>
class Reflecting {
 public:
  Reflecting(int64_t m, int64_t n, const T* from, T* to, T* tau)
      : m_(m),
        n_(n),
        from_{from, n},
        to_{to, n},
        tau_(tau),
        x_(m, n),
        panel_(size_t(m * kPanel)),
        blocks_(strips_of(std::min(m, n))) {}

  bool run() {
    auto m = double(m_), n = double(n_), k = std::min(m, n);
    double operations = 2 * k * (2 * m * n - k * (m + n) + k * k * 2 / 3);
    return run_by_strips(blocks_.count(), x_.count(), operations,
                         {[&](int64_t k) { return factor(k); },
                          [&](int64_t k, int64_t j) {
                            if (k == 0) read(j);
                            blocks_[k].apply(ReflectionBlock<T>::Order::backward, padded(x_.width(j)),
                                             x_[j].at(k * kStrip, 0));
                          },
                          [&](int64_t j) {
                            write_strip(m_, x_.width(j), read_only(x_[j]), to_.at(0, j * kStrip));
                          }});
  }

 private:
  void read(int64_t j) { read_strip(m_, x_.width(j), from_.at(0, j * kStrip), x_[j]); }

  bool factor(int64_t k) {
    if (k == 0) read(k);
    int64_t top = k * kStrip, rows = m_ - top, columns = x_.width(k), count = std::min(rows, columns);
    RowMajor<T> a = x_[k].at(top, 0);
    T* tau = tau_ + top;
    for (int64_t c = 0; c < count; c += kPanel) {
      int64_t some = std::min(kPanel, count - c), right = padded(columns) - c - kPanel;
      if (!panel(rows - c, int(some), a.at(c, c), tau + c)) return false;
      if (right <= 0) continue;
      alignas(64) T room[ReflectionBlock<T>::kRoom];
      ReflectionBlock<T> block(rows - c, some, read_only(a.at(c, c)), tau + c, room);
      block.apply(ReflectionBlock<T>::Order::backward, right, a.at(c, c + kPanel));
    }
    blocks_.make(k, rows, count, read_only(a), tau);
    return true;
  }
  bool panel(int64_t m, int w, RowMajor<T> a, T* tau) {
    return as_panel(m, a, panel_.data(),
                    [&](T* panel) { return strip_kernels<T>().reflect_panel(m, w, panel, tau); });
  }

  int64_t m_, n_;
  RowMajor<const T> from_;
  RowMajor<T> to_;
  T* tau_;
  Strips<T> x_;
  Workspace<T> panel_;
  ReflectionBlocks<T> blocks_;
};

}  // namespace

template <class T>
bool reflect_in_rows(int64_t m, int64_t n, const T* a, T* x, T* tau) {
  return Reflecting<T>(m, n, a, x, tau).run();
}

template <class T>
void multiply_reflections_in_rows(int64_t m, int64_t n, int64_t count, const T* a, const T* tau, T* x) {
  Reflections<T> all(m, count);
  std::copy_n(tau, count, all.tau.data());
  for (int64_t k = 0; k < all.v.count(); ++k) {
    int64_t top = k * kStrip;
    read_strip(m - top, all.v.width(k), {a + top * n + top, n}, all.v[k].at(top, 0));
  }
  all.finish();
  // Later strips take part in more blocks, so the last one goes first.
  int64_t strips = strips_of(n);
  take_turns(strips, 2.0 * double(m) * double(n) * double(count), [&](int64_t turn) {
    int64_t j = strips - 1 - turn, columns = std::min(kStrip, n - j * kStrip);
    Workspace<T> room(size_t(m * kStrip));
    RowMajor<T> q{room.data(), kStrip};
    unit_strip(m, j * kStrip, columns, q);
    all.apply(padded(columns), q, j + 1);
    write_strip(m, columns, read_only(q), {x + j * kStrip, n});
  });
}

#define FACULA_REFLECTIONS(T)                                                                           \
  template class ReflectionBlock<T>; \
  template class Reflections<T>; \
  template bool reflect_in_rows(int64_t, int64_t, const T*, T*, T*);      \
  template void multiply_reflections_in_rows(int64_t, int64_t, int64_t, const T*, const T*, T*);
FACULA_REFLECTIONS(float)
FACULA_REFLECTIONS(double)
#undef FACULA_REFLECTIONS

}  // namespace facula::numerics
