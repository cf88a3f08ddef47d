// Modules and functions of Python's nn by their names, for front ends whose settings are values (torch/nn).
#pragma once
#include <string_view>

#include "facula/io/value.h"
#include "facula/nn/module.h"

namespace facula::nn {

// A module of modules.h: make_module("Conv2d", {{"in_channels", 1}, ...}). Settings that are not given have their defaults.
Module make_module(std::string_view name, const io::Dict& settings);
// Calls a module, with inputs by name.
io::Value call_module(const Module& m, const io::Dict& inputs);
// Calls a function of nn.functional, with arguments by name.
io::Value call_functional(std::string_view name, const io::Dict& arguments);
// Calls an operator, with arguments by the names of its schema.
io::Value call_operator(std::string_view name, const io::Dict& arguments);
// A module as a setting of another one.
io::Value module_value(const Module& m);

}  // namespace facula::nn
