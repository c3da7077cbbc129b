"""Settings that do not go together are refused or warned of where they are read, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import InputError

AWS = '[cloud]\nprovider = "aws"\n'
REFUSED = {
    "a tick as long as the lease": (
        AWS + "lease_minutes = 2\n[daemon]\ntick_seconds = 120\n",
        r"boa\.toml:5: .*would power off before its first renewal.*40 or less",
    ),
    "a tick of an hour": (AWS + "lease_minutes = 2.0\n[daemon]\ntick_seconds = 3600\n", "boa.toml:5: "),
    "a zone of another region": (
        AWS + 'zones = ["eu-west-1a"]\n',
        r"boa\.toml:3: .*not in the region us-east-1",
    ),
    "a placement group of another region": (AWS + 'placement_groups = {eu-west-1a = "g"}\n', "boa.toml:3: "),
    "a webhook without a scheme": (
        '[alerts]\nwebhook = "hooks.example/x"\n',
        "boa.toml:2: .*no http or https",
    ),
    "a user's webhook": ('[users.ann]\nwebhook = "mail"\n', r"boa\.toml:2: \[users\.ann\] webhook"),
    "a topic that is no ARN": ('[alerts]\nsns_topic = "boa"\n', "boa.toml:2: .*no ARN"),
    "half a quote in a command": ('[alerts]\ncommand = "say \'x"\n', "boa.toml:2: .*split into words"),
    "a notifier that is not installed": (
        '[alerts]\nnotifiers = {pager = "x"}\n',
        "boa.toml:2: .*no plug-in 'pager'",
    ),
    "half a key pair": ('[api]\ntls_cert = "a.pem"\n', "boa.toml:2: .*go together"),
}
WARNED = {
    "a day cap below a day of the budget": (
        "[budget]\nusd_per_hour = 10\nusd_per_day_cap = 100\n",
        ":3: [budget] usd_per_day_cap 100 is below a day of the budget, 240",
    ),
    "the default day cap below the budget": (
        "[budget]\nusd_per_hour = 40\n",
        "usd_per_day_cap 300 is below a day",
    ),
    "a month cap below a month of the budget": (
        "[budget]\nusd_per_hour = 10\nusd_per_month_cap = 5000\n",
        ":3: [budget] usd_per_month_cap 5000 is below a month",
    ),
    "a day cap above the month cap": ("[budget]\nusd_per_month_cap = 200\n", "it never holds"),
    "standing costs above the budget": ("[budget]\nstanding_usd_per_hour = 11\n", ":2: [budget] standing"),
    "standing costs above the day cap": (
        "[budget]\nstanding_usd_per_hour = 1\nusd_per_day_cap = 24\n",
        "is used up by standing_usd_per_hour",
    ),
    "a ceiling below each machine": (
        "[budget]\nusd_per_hour_ceiling = 0.5\n",
        ":2: [budget] usd_per_hour_ceiling",
    ),
    "a day cap below a launch whose ticks are long": (
        "[budget]\nusd_per_hour = 0.04\nusd_per_day_cap = 1.0\n[daemon]\ntick_seconds = 300\n",
        "for 68 minutes",
    ),
    "a day cap below each machine": ("[budget]\nusd_per_day_cap = 0.01\n", "has no room for a machine"),
    "a pool above the instances": (
        "[budget]\nmax_instances = 2\n[cloud]\nwarm_pool_nodes = 3\n",
        ":4: [cloud] warm",
    ),
    "a lease of two ticks": (AWS + "lease_minutes = 2\n[daemon]\ntick_seconds = 60\n", "one failed tick"),
    "a grace longer than the spot warning": (
        AWS + 'market = "spot"\n[daemon]\ncheckpoint_seconds = 180\n',
        ":5: [daemon] checkpoint_seconds 180 is longer than the 120 s",
    ),
    "a start longer than a boot": (
        "[cloud]\nboot_seconds = 5\nstart_seconds = 9\n",
        ":3: [cloud] start_seconds",
    ),
    "a stall shorter than a tick": ("[daemon]\nstall_seconds = 5\n", ":2: [daemon] stall_seconds"),
    "backups more often than ticks": ("[daemon]\nbackup_seconds = 5\n", ":2: [daemon] backup_seconds"),
    "a spot price of another machine": (
        AWS + 'market = "spot"\nspot_max_usd_per_hour = {"g5.xlrge" = 1.0}\n',
        ":4: [cloud] spot_max_usd_per_hour: 'g5.xlrge'",
    ),
    "a spot price without spot": (
        AWS + 'spot_max_usd_per_hour = {"g5.xlarge" = 1.0}\n',
        "no effect with market",
    ),
    "a reservation of another machine": (AWS + 'reservations = {"p5.48xlarge" = "cr-1"}\n', "reservations"),
    "an image of another family": (AWS + 'images = {p4d = "ami-1"}\n', "family 'p4d'"),
    "a boot time on AWS": (
        AWS + "boot_seconds = 9\n",
        ":3: [cloud] boot_seconds is of simulated",
    ),
    "a stock on AWS": (AWS + "stock = 9\n", ":3: [cloud] stock is of simulated and local, and has no effect"),
    "a stock on Slurm": (
        '[cloud]\nprovider = "slurm"\nstock = 9\n',
        ":3: [cloud] stock is of simulated and local, and has no effect",
    ),
    "partitions on AWS": (
        AWS + '[cloud.partitions.a]\ngpu = "a100"\ngpus = 8\n',
        "[cloud] partitions is of Slurm, and has no effect with provider = 'aws'",
    ),
    "partitions here": (
        '[cloud]\nprovider = "local"\n[cloud.partitions.a]\ngpu = "a100"\ngpus = 8\n',
        "[cloud] partitions is of Slurm",
    ),
    "a warm pool here": (
        '[cloud]\nprovider = "local"\nwarm_pool_nodes = 1\n',
        ":3: [cloud] warm_pool_nodes is of AWS and simulated",
    ),
    "a warm pool on Slurm": (
        '[cloud]\nprovider = "slurm"\nwarm_pool_nodes = 1\nstart_seconds = 3.0\n',
        ":4: [cloud] start_seconds is of AWS and simulated",
    ),
    "prices of AWS on Slurm": (
        '[cloud]\nprovider = "slurm"\nspot_max_usd_per_hour = {"g5.xlarge" = 1.0}\n',
        ":3: [cloud] spot_max_usd_per_hour is of AWS",
    ),
    "a zone on the simulated cloud": ('[cloud]\nzones = ["us-east-1a"]\n', ":2: [cloud] zones is of AWS"),
    "a team's cap above the site's": ('[teams.a]\nmembers = ["x"]\nusd_per_day_cap = 301\n', ":3: [teams.a]"),
    "a user's cap above the site's": ("[users.a]\nusd_per_day_cap = 301\n", ":2: [users.a]"),
    "a team's day above its month": (
        '[teams.a]\nmembers = ["x"]\nusd_per_day_cap = 30\nusd_per_month_cap = 20\n',
        ":3: [teams.a]",
    ),
    "a team without members": ("[teams.a]\nusd_per_day_cap = 3\n", "nobody can submit"),
    "tokens without a listener": ('[api]\ntokens = "t"\n', ":2: [api] tokens has no effect"),
    "an alert at nothing": ("[alerts]\nat_fractions = [0.0, 1.0]\n", ":2: [alerts] at_fractions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_its_line(tmp_path: Path, case: str) -> None:
    """Nodes that would power off, and channels that nothing can go through."""
    text, said = REFUSED[case]
    file = tmp_path / "boa.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        load_settings(file, environment={})


@pytest.mark.parametrize("case", WARNED)
def test_what_only_holds_back_is_warned_of_with_its_line(tmp_path: Path, case: str) -> None:
    """Caps below the budget or below each machine, and keys without effect."""
    text, said = WARNED[case]
    file = tmp_path / "boa.toml"
    file.write_text(text)
    found = load_settings(file, environment={}).warnings()
    assert any(said in warning for warning in found), found


def test_the_defaults_go_together(tmp_path: Path) -> None:
    """An empty section is no reason for a warning."""
    file = tmp_path / "boa.toml"
    file.write_text("[budget]\n")
    assert load_settings(file, environment={}).warnings() == ()


def test_a_variable_or_a_flag_that_conflicts_is_refused_too(tmp_path: Path) -> None:
    """The pair may come from two layers."""
    file = tmp_path / "boa.toml"
    file.write_text(AWS + "lease_minutes = 2\n")
    with pytest.raises(InputError, match="power off"):
        load_settings(file, environment={"BOA_DAEMON_TICK_SECONDS": "600"})
    with pytest.raises(InputError, match="power off"):
        load_settings(file, environment={}, flags={"daemon.tick_seconds": 600.0})
