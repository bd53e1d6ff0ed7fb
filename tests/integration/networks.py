#!/usr/bin/env python3
"""Ranks on two hosts, which are network name spaces of this machine with a cable between them:
networks.py PROGRAM [unittest arguments]"""

import shutil
import subprocess
import sys
import unittest

from job_runs import JobRuns

# Two hosts in name spaces that end with the command; $1 is what runs there.
HOSTS = """
mount -t tmpfs none /run || exit
for host in 1 2; do ip netns add host$host || exit; done
ip link add cable1 netns host1 type veth peer name cable2 netns host2 || exit
for host in 1 2; do
  ip -n host$host address add 10.77.0.$host/24 dev cable$host
  ip -n host$host link set cable$host up
  ip -n host$host link set lo up
done
on() { host=$1; shift; nsenter --net=/run/netns/host$host unshare --uts sh -c "hostname host$host; exec \\"\\$@\\"" sh "$@"; }
"""
UNSHARE = ("unshare", "--map-root-user", "--user", "--mount", "--net", "bash", "-c")
MAY = subprocess.run([*UNSHARE, HOSTS + "on 1 true"], check=False, capture_output=True)

# A rank on each host, as torchrun places them; $@ is the program and its arguments.
TORCHRUN = """
export WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500
RANK=1 on 2 "$@" & RANK=0 on 1 "$@" && wait $!
"""
# Two ranks on each host; what mpirun asks of ssh is done by name spaces.
MPIRUN = """
cat > remote <<'END'
#!/bin/sh
shift
exec nsenter --net=/run/netns/host2 unshare --uts sh -c "hostname host2; $*"
END
chmod +x remote
on 1 mpirun --allow-run-as-root --host 10.77.0.1:2,10.77.0.2:2 --mca plm_rsh_agent "$PWD/remote" \\
  -x MASTER_ADDR=10.77.0.1 -np 4 "$@"
"""


@unittest.skipIf(MAY.returncode != 0, f"no network name spaces: {MAY.stderr.decode().strip()}")
class Networks(JobRuns):
    def expect_bits_of_threads(self, ranks, launch):
        job = ("job.yaml", "--ranks", ranks, "--sharding", "FULL_SHARD", "--output")
        self.run_job(*job, "threads")
        launcher = (*UNSHARE, HOSTS + launch, "bash")
        status, out, errors = self.end(self.start(*job, "hosts", launcher=launcher))
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(self.weights("threads"), self.weights("hosts"))
        return out

    def test_tcp_between_hosts(self):
        self.expect_bits_of_threads("2", TORCHRUN)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpi_between_hosts(self):
        out = self.expect_bits_of_threads("4", MPIRUN)
        self.assertEqual("processes over MPI" in out, self.has_mpi())


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
