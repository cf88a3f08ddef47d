"""Which definitions give their gradient by a rule of their own, and which have it derived."""

import collections

import facula._C as C

# Rules that are written by hand. Several definitions may share one: a family (all Cholesky factors), two
# operators that are each other's transpose, or all that put elements where a view took them from. The number
# only falls; a new rule has to be better than the derived gradient.
LIMIT = 101


def rules():
    """The definitions that share a rule, by rule."""
    shared = collections.defaultdict(list)
    for o in C.operators():
        name = o["name"] + ("." + o["overload"] if o["overload"] else "")
        rule = C.inspect_operator(name)["rule"]
        if rule and "NoDerivative" not in rule:  # which says that there is none
            shared[rule].append(name)
    return shared


def test_there_are_few_rules():
    shared = rules()
    print(f"\n{len(shared)} rules of {sum(map(len, shared.values()))} definitions")
    for names in sorted(shared.values()):
        print("  " + ", ".join(names))
    assert len(shared) <= LIMIT


def test_operators_that_are_each_others_transpose_have_one_rule():
    together = [
        names
        for rule, names in rules().items()
        if rule.startswith("transpose ") and rule != "transpose of a view"
    ]
    assert ["avg_pool2d", "avg_pool2d_backward"] in [sorted(names) for names in together]
    assert all(len(names) <= 2 for names in together)
    assert sorted(rules()["transpose of a view"]) == [
        "diagonal_backward",
        "select_backward",
        "slice_backward",
    ]
