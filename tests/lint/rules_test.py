"""The lint can fail: every rule on a text that breaks it, and on one that does not."""

import unittest
from pathlib import Path

import rules


class Arrows(unittest.TestCase):
    def test_the_simulator_must_not_include_the_planner(self):
        self.assertTrue(rules.arrows(Path("simulator/a.cpp"), '#include "planner/planner.h"\n'))

    def test_the_simulator_may_include_costs(self):
        self.assertFalse(rules.arrows(Path("simulator/a.cpp"), '#include "planner/cost/gemm.h"\n'))

    def test_costs_must_not_include_the_planner(self):
        self.assertTrue(rules.arrows(Path("planner/cost/a.h"), '#include "planner/planner.h"\n'))

    def test_plans_include_nothing_of_ours(self):
        self.assertTrue(rules.arrows(Path("plans/a.h"), '#include "kernels/kernels.h"\n'))

    def test_kernels_do_not_see_plans(self):
        self.assertTrue(rules.arrows(Path("kernels/cpu/a.cpp"), '#include "plans/plan.h"\n'))
        self.assertFalse(rules.arrows(Path("kernels/cpu/a.cpp"), '#include "plans/units.h"\n'))

    def test_includes_are_spelled_from_the_root(self):
        self.assertTrue(rules.arrows(Path("plans/a.cpp"), '#include "error.h"\n'))
        self.assertTrue(rules.arrows(Path("plans/a.cpp"), '#include "../plans/error.h"\n'))


class StrategyBlind(unittest.TestCase):
    def test_names_are_found_whatever_their_case_comments_included(self):
        for text in ("// as FSDP does", "kFullShard", "NO_SHARD", "if (ddp)", "job.strategy.wrap"):
            self.assertTrue(rules.strategy_blind(Path("runtime/a.cpp"), text), text)

    def test_other_words_and_other_folders_are_left_alone(self):
        self.assertFalse(rules.strategy_blind(Path("runtime/a.cpp"), "fill(zero); shard; oddp"))
        self.assertFalse(rules.strategy_blind(Path("planner/a.cpp"), "FULL_SHARD"))


class Length(unittest.TestCase):
    def test_600_lines_are_enough(self):
        self.assertFalse(rules.length(Path("plans/a.cpp"), "\n" * 600))
        self.assertTrue(rules.length(Path("plans/a.cpp"), "\n" * 601))


class OwnHeadersOnly(unittest.TestCase):
    PUBLIC = {"plans/a.h", "plans/b.h", "plans/model_graph.h"}

    def complaints(self, path, text):
        return rules.own_headers_only(Path(path), text, self.PUBLIC)

    def test_third_party_headers_stay_out(self):
        self.assertTrue(self.complaints("plans/a.h", "#include <nlohmann/json.hpp>\n"))
        self.assertFalse(self.complaints("plans/a.h", "#include <vector>\n"))
        self.assertFalse(self.complaints("plans/internal.h", "#include <fmt/core.h>\n"))

    def test_the_graph_type_may_come_from_boost(self):
        text = "#include <boost/graph/adjacency_list.hpp>\n"
        self.assertFalse(self.complaints("plans/model_graph.h", text))
        self.assertTrue(self.complaints("plans/a.h", text))

    def test_only_installed_headers_are_included(self):
        self.assertTrue(self.complaints("plans/a.h", '#include "plans/internal.h"\n'))
        self.assertFalse(self.complaints("plans/a.h", '#include "plans/b.h"\n'))


class Portable(unittest.TestCase):
    def test_machine_folders_and_registries_are_found(self):
        self.assertTrue(rules.portable(Path("a.md"), "see " + "/ro" + "ot/x"))
        self.assertTrue(rules.portable(Path("a.md"), "from pypi." + "org"))
        self.assertFalse(rules.portable(Path("a.md"), "https://example.org/home/page a/work/b"))


class PublicHeaders(unittest.TestCase):
    def test_they_are_read_from_the_library_calls(self):
        text = "shardplan_library(plans\n  HEADERS a.h sub/b.h\n  SOURCES a.cpp)"
        self.assertEqual(rules.public_headers({"plans": text}), {"plans/a.h", "plans/sub/b.h"})


if __name__ == "__main__":
    unittest.main()
