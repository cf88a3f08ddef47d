// Calls that may refuse elements (Effects::checks) refuse them wherever they are: a kernel that computes only the elements which
// its consumers read would miss some.
//   example: y = embedding(i, w), return y[:, -1]  ->  y is stored, since a kernel of y[:, -1] alone looks at few of the indices
#pragma once
#include <vector>

#include "facula/schedule/fusion/body.h"
#include "facula/schedule/fusion/values.h"

namespace facula::schedule::fusion {

// The values of such calls that have to be stored, as no chain of consumers reads all of their elements.
//   cost: linear in the nodes that depend on such calls
std::vector<graph::Value*> partly_read(const graph::Graph& g, const Values& values, Bodies& body_of);

}  // namespace facula::schedule::fusion
