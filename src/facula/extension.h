// For libraries that extend Facula: operators and classes of a user's own (docs/extending.md).
#pragma once
#include "facula/extend/library.h"
#include "facula/facula.h"
#include "facula/op/helpers.h"   // what definitions are made of
#include "facula/op/registry.h"  // op::get: operators by name
