#!/usr/bin/env python3
"""What a machine can do to a job: faults.py PROGRAM [unittest arguments]

Ranks that die or hang: fault_campaign.cpp."""

import signal
import subprocess
import sys
import time
import unittest

from job_runs import JobRuns, is_there

# A name space of its own, in which a file system may be mounted.
UNSHARE = ("unshare", "--map-root-user", "--user", "--mount", "bash", "-c")
CAN_MOUNT = subprocess.run([*UNSHARE, "mount -t tmpfs -o size=1m none /mnt"], check=False,
                           capture_output=True).returncode == 0


class Faults(JobRuns):
    def mounted(self, size, folder, then):
        """A launcher that has a file system of that size on the folder, prepared by `then`."""
        script = f'mount -t tmpfs -o size={size} none "{folder}" && {then} && exec "$@"'
        return (*UNSHARE, script, "bash")

    @unittest.skipUnless(CAN_MOUNT, "may not mount here")
    def test_a_full_disk_leaves_the_checkpoint_before(self):
        (self.folder / "out").mkdir()
        self.run_job("job.yaml", "--output", "whole", "--steps", "4")
        # Room for the weights, one checkpoint and not two: 1.6 million parameters, three numbers
        # each, in float32.
        kept = self.folder / "kept"
        run = (f'"$1" run job.yaml --steps 4 --processes --set run.checkpoint_every=2; '
               f'status=$?; cp -r out/checkpoints "{kept}"; exit $status')
        launcher = (*UNSHARE, f'mount -t tmpfs -o size=38m none out && {run}', "bash")
        errors = self.run_job(launcher=launcher, status=3)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertRegex(errors, r"rank \d: out/checkpoints/step-00000004.tmp/.*: No space left")
        self.run_job("job.yaml", "--steps", "4", "--resume", str(kept / "step-00000002"))
        self.assertEqual(self.weights("out"), self.weights("whole"))

    @unittest.skipUnless(CAN_MOUNT, "may not mount here")
    def test_a_full_shared_memory_is_not_needed(self):
        launcher = self.mounted("4k", "/dev/shm", "! head -c 8192 /dev/zero > /dev/shm/x")
        self.run_job("job.yaml", "--processes", launcher=launcher)

    def test_ranks_with_different_plans_do_not_train(self):
        ends = self.torchrun(("job.yaml", "--ranks", "2"),
                             ("job.yaml", "--ranks", "2", "--sharding", "DDP"))
        self.assertEqual([status for status, _ in ends], [3, 3])
        said = [errors for _, errors in ends if errors]
        self.assertEqual(len(said), 1, ends)
        self.assertRegex(said[0], "ranks do not run the same: rank 0 has .* plan [0-9a-f]{16}, "
                                  "rank 1 has .* plan [0-9a-f]{16}")
        self.assertFalse((self.folder / "out").exists())

    def test_ranks_with_different_run_sections_do_not_train(self):
        ends = self.torchrun(("job.yaml", "--ranks", "2"),
                             ("job.yaml", "--ranks", "2", "--steps", "4"))
        self.assertEqual([status for status, _ in ends], [3, 3])
        self.assertEqual([errors for _, errors in ends if errors],
                         ["ranks do not run the same: the run section of rank 1 is not that of "
                          "rank 0\n"])

    def test_a_dead_launcher_leaves_no_ranks(self):
        launcher = self.start("job.yaml", "--processes", "--steps", "100000")
        ranks = self.wait_for_ranks(launcher, 4)
        launcher.send_signal(signal.SIGKILL)
        launcher.communicate()
        deadline = time.monotonic() + 10
        while any(map(is_there, ranks)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual([pid for pid in ranks if is_there(pid)], [])

    def test_all_ranks_killed_is_said_by_the_launcher(self):
        launcher = self.start("job.yaml", "--processes", "--steps", "100000", "--ranks", "1")
        ranks = self.wait_for_ranks(launcher, 1)
        subprocess.run(["kill", "-9", *map(str, ranks)], check=True)
        status, _, errors = self.end(launcher)
        self.assertEqual((status, errors), (3, "rank 0 was ended by signal 9 (Killed)\n"))


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
