// The catalog: all families of operators, in one list that the generator writes from the files of this
// folder.
#pragma once
namespace facula::catalog {
// Defines every operator, once. Called when the library is first used; safe from any thread.
void load();
}  // namespace facula::catalog
