// Reads, resizes and splits pictures of three channels of bytes, under the names of OpenCV. The only format is binary PPM.
#pragma once
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace cv {

struct Size {
  int width, height;
  Size(int w, int h) : width(w), height(h) {}
};

struct Mat {
  int rows = 0, cols = 0, channels = 0;
  std::vector<unsigned char> bytes;  // row by row, the channels of a pixel beside each other
  Mat() = default;
  Mat(int rows_, int cols_, int channels_)
      : rows(rows_), cols(cols_), channels(channels_), bytes(size_t(rows_) * size_t(cols_) * size_t(channels_)) {}
  bool empty() const { return bytes.empty(); }
  unsigned char* ptr() { return bytes.data(); }
  unsigned char& at(int row, int col, int channel) {
    return bytes[(size_t(row) * size_t(cols) + size_t(col)) * size_t(channels) + size_t(channel)];
  }
};

// The channels are blue, green, red. An unreadable file gives an empty picture.
inline Mat imread(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string kind;
  int cols = 0, rows = 0, largest = 0;
  if (!(file >> kind >> cols >> rows >> largest) || kind != "P6" || largest != 255) return Mat();
  file.get();
  Mat picture(rows, cols, 3);
  file.read(reinterpret_cast<char*>(picture.ptr()), std::streamsize(picture.bytes.size()));
  for (size_t k = 0; k < picture.bytes.size(); k += 3) std::swap(picture.bytes[k], picture.bytes[k + 2]);
  return file ? picture : Mat();
}

// Takes the nearest pixel.
inline void resize(Mat from, Mat& to, Size size) {
  to = Mat(size.height, size.width, from.channels);
  for (int row = 0; row < to.rows; ++row)
    for (int col = 0; col < to.cols; ++col)
      for (int c = 0; c < to.channels; ++c)
        to.at(row, col, c) = from.at(row * from.rows / to.rows, col * from.cols / to.cols, c);
}

inline void split(Mat from, std::vector<Mat>& to) {
  to.assign(size_t(from.channels), Mat(from.rows, from.cols, 1));
  for (int row = 0; row < from.rows; ++row)
    for (int col = 0; col < from.cols; ++col)
      for (int c = 0; c < from.channels; ++c) to[size_t(c)].at(row, col, 0) = from.at(row, col, c);
}

}  // namespace cv
