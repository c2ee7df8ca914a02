"""Where a setting comes from, and what a wrong one is answered."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from turnyard.errors import ConfigError
from turnyard.settings import load_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def write(tmp_path: Path, text: str, name: str = "turnyard.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def fault(config: Path | None = None, **kwargs: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(config, **({"environ": {}} | kwargs))  # type: ignore[arg-type]
    return str(caught.value)


def test_without_a_file_or_environment_the_defaults_hold():
    settings = load_settings(environ={})
    timing, limits = settings.timing, settings.limits
    assert (timing.lease_ms, timing.beat_ms, timing.begin_by_ms, timing.tick_ms, timing.quantum_ms) == (10_000, 2_000, 3_000, 1_000, 30_000)
    assert (limits.max_concurrent_turns, limits.inbox_per_session, limits.queue_per_tenant, limits.message_bytes) == (
        200,
        100,
        10_000,
        262_144,
    )
    assert settings.redis.connection_url() is None


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path):
    file = write(tmp_path, "limits: {max_concurrent_turns: 1, inbox_per_session: 1, queue_per_tenant: 1}")
    environ = {"TURNYARD__LIMITS__MAX_CONCURRENT_TURNS": "2", "TURNYARD__LIMITS__INBOX_PER_SESSION": "2"}
    limits = load_settings(file, flags={"limits.max_concurrent_turns": 3, "limits.message_bytes": None}, environ=environ).limits
    assert (limits.max_concurrent_turns, limits.inbox_per_session, limits.queue_per_tenant, limits.message_bytes) == (3, 2, 1, 262_144)


def test_the_short_variables_stand_for_their_long_keys_and_a_long_one_wins():
    environ = {"REDIS_URL": "redis://a", "TURNYARD_URL": "http://b", "TURNYARD_API_KEY": "k", "TURNYARD_STATE": "/s"}
    settings = load_settings(environ=environ)
    assert settings.client.api_key
    assert (settings.redis.url, settings.client.url, settings.client.api_key.get_secret_value(), settings.state_dir) == (
        "redis://a",
        "http://b",
        "k",
        Path("/s"),
    )
    assert load_settings(environ=environ | {"TURNYARD__REDIS__URL": "redis://c"}).redis.url == "redis://c"


def test_the_file_is_the_named_one_else_that_of_the_environment_else_the_one_here(tmp_path: Path):
    write(tmp_path, "pools: {here: {}}")
    named, pointed = write(tmp_path, "pools: {named: {}}", "a.yaml"), write(tmp_path, "pools: {pointed: {}}", "b.yaml")
    assert list(load_settings(named, environ={"TURNYARD_CONFIG": str(pointed)}).pools) == ["named"]
    assert list(load_settings(environ={"TURNYARD_CONFIG": str(pointed)}).pools) == ["pointed"]
    assert list(load_settings(environ={}).pools) == ["here"]


def test_an_unknown_key_is_refused_with_its_path_and_the_nearest_known_one(tmp_path: Path):
    assert fault(write(tmp_path, "limits: {max_concurent_turns: 1}")).endswith(
        "turnyard.yaml: limits.max_concurent_turns: unknown key; did you mean max_concurrent_turns?"
    )
    assert "pools.gpu.max_concurrent_turn: unknown key; did you mean max_concurrent_turns?" in fault(
        write(tmp_path, "pools: {gpu: {max_concurrent_turn: 1}}")
    )
    assert "routes[0].trigge: unknown key; did you mean trigger?" in fault(write(tmp_path, "routes: [{name: a, agent: b, trigge: all}]"))
    assert "platforms.slack.bot_tokn: unknown key; did you mean bot_token?" in fault(write(tmp_path, "platforms: {slack: {bot_tokn: x}}"))


def test_a_wrong_environment_variable_is_named_as_such():
    assert fault(environ={"TURNYARD__LIMITS__MAX_CONCURRENT_TURNS": "many"}).startswith(
        "TURNYARD__LIMITS__MAX_CONCURRENT_TURNS: limits.max_concurrent_turns:"
    )
    assert "TURNYARD__LIMTS__MESSAGE_BYTES: limts: unknown key; did you mean limits" in fault(
        environ={"TURNYARD__LIMTS__MESSAGE_BYTES": "1"}
    )


def test_all_faults_are_told_at_once(tmp_path: Path):
    assert len(fault(write(tmp_path, "limits: {a: 1, message_bytes: 0}\nredis: {durable_ack: maybe}")).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits: [", "line 1: not valid YAML"),
        ("limits: &l {a: *l}", "nests too deep"),
        ("a: " + "{a: " * 5000, "nests too deep"),
        ("limits: {}\nlimits: {}", "line 2: not valid YAML: the key 'limits' stands twice"),
        ("- a", "holds a list"),
        ("redis: {url: !!python/object:os.system x}", "not valid YAML"),
    ],
)
def test_a_file_that_is_not_a_tree_of_keys_is_refused_with_the_line(tmp_path: Path, text: str, says: str):
    assert says in fault(write(tmp_path, text))


def test_a_named_file_that_is_missing_is_refused(tmp_path: Path):
    assert "none.yaml: cannot be read" in fault(tmp_path / "none.yaml")


def test_an_environment_reference_is_filled_in_and_a_missing_one_names_its_key(tmp_path: Path):
    file = write(tmp_path, 'redis: {url: "redis://${HOST:-localhost}:${PORT}/0"}\ndefaults: {errors: "a $${PORT}"}')
    settings = load_settings(file, environ={"PORT": "1"})
    assert (settings.redis.url, settings.defaults.errors) == ("redis://localhost:1/0", "a ${PORT}")
    assert "redis.url: the environment variable PORT is not set" in fault(file)


def test_a_secret_comes_from_its_file_relative_to_the_configuration_and_is_not_shown(tmp_path: Path):
    (tmp_path / "pw").write_text("hunter2\n")
    file = write(tmp_path, "redis: {url: 'redis://host:1/0', username: edge, password_file: pw}")
    redis = load_settings(file, environ={}).redis
    assert redis.connection_url() == "redis://edge:hunter2@host:1/0"
    assert "hunter2" not in repr(redis)


def test_a_value_given_higher_up_replaces_the_file_that_a_lower_source_named(tmp_path: Path):
    file = write(tmp_path, "redis: {url: 'redis://h', password_file: /missing}")
    assert "password_file: /missing cannot be read" in fault(file)
    redis = load_settings(file, environ={"TURNYARD__REDIS__PASSWORD": "p@ss"}).redis
    assert redis.connection_url() == "redis://:p%40ss@h"


def test_a_key_and_its_file_together_are_refused(tmp_path: Path):
    assert "give password or password_file, not both" in fault(write(tmp_path, "redis: {password: a, password_file: b}"))


def test_a_wrong_value_is_never_repeated_where_it_may_be_a_secret(tmp_path: Path):
    assert "hunter2" not in fault(write(tmp_path, "redis: {password: [hunter2]}"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7d", timedelta(days=7)), ("1.5s", timedelta(seconds=1.5)), ("90", timedelta(seconds=90)), ("15m", timedelta(minutes=15))],
)
def test_a_duration_has_a_unit_or_is_seconds(tmp_path: Path, text: str, expected: timedelta):
    assert load_settings(write(tmp_path, f"retention: {{jobs: {text}}}"), environ={}).retention.jobs == expected


def test_a_duration_without_a_known_unit_is_refused(tmp_path: Path):
    assert "a number with ms, s, m, h or d" in fault(write(tmp_path, "retention: {jobs: 7 weeks}"))


def test_a_lease_that_one_late_beat_would_end_is_refused():
    assert "at least three beats" in fault(environ={"TURNYARD__TIMING__LEASE_MS": "2000"})


def test_the_documented_example_is_accepted(tmp_path: Path):
    for name in ("redis", "openai", "acme", "bot", "app", "fs", "fe", "wh"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "triage.md").write_text("Sort it.")
    settings = load_settings(write(tmp_path, EXAMPLE), environ={"REDIS_URL": "redis://h"})
    assert settings.agents["triage"].instructions == "Sort it."
    assert settings.agents["triage"].debounce == timedelta(seconds=1.5)


EXAMPLE = """
version: 1
redis: {url: "${REDIS_URL}", username: edge, password_file: redis, tls_ca_file: null, durable_ack: none}
models: {fast: "openai:gpt-5.5-mini", smart: ["anthropic:claude-sonnet-5", "openai:gpt-5.5"]}
providers: {openai: {api_key_file: openai, rpm: 500, tpm: 2000000}}
limits: {max_concurrent_turns: 200, inbox_per_session: 100, queue_per_tenant: 10000, message_bytes: 262144}
pools: {default: {}, gpu: {max_concurrent_turns: 8}}
tenants:
  acme: {weight: 2, max_concurrent_turns: 50, tokens_per_day: 5000000, agents: [support, billing, triage], webhook_secret_file: acme}
agents:
  support: {model: smart, limits: {model_calls: 60}}
  triage: {model: fast, instructions_file: triage.md, tools: ["acme.tools:lookup"], mode: collect, debounce: 1.5s}
approvals:
  - {tools: ["refund", "crm_set_*"], approvers: ["slack:usergroup:S0FIN"], post_to: here, expires_in: 15m, remember: session, self_approve: false}
platforms:
  slack: {mode: socket, bot_token_file: bot, app_token_file: app, tenant: acme}
  feishu: {domain: feishu, mode: webhook, app_id: cli_x, app_secret_file: fs, encrypt_key_file: fe, tenant: acme}
defaults: {trigger: mention, scope: thread, reply: thread, stream: edit, react: {seen: eyes, done: white_check_mark, failed: x, cancelled: no_entry},
  allow: {users: ["*"], guests: false, external: false, bots: false}, admins: [], files: {max_bytes: 20000000, types: ["image/*", "application/pdf"]},
  errors: "Something broke (ref {ref}).", budget: {user_tokens_per_day: 200000}, attribution: true, tool_lines: 2}
routes:
  - {name: ops, match: {platform: slack, channel: [C0OPS]}, agent: support, trigger: all, mode: steer, admins: [U0ANN]}
  - {name: dm, match: {platform: slack, kind: dm}, agent: triage, trigger: all, scope: user, reply: flat, allow: {users: ["slack:usergroup:S0STAFF"]}}
  - {name: fs-groups, match: {platform: feishu, kind: group}, agent: support, stream: native}
  - {name: support-words, match: {platform: slack, text: "^!ask "}, agent: support, trigger: match, strip: true}
schedules: [{name: standup, cron: "0 9 * * 1-5", tz: Europe/Berlin, agent: support, input: "Summarise yesterday", deliver_to: "slack:T01:ch:C0OPS", interactive: false}]
webhooks: [{url: "https://bi.acme.io/hook", events: ["job.*", "approval.requested"], secret_file: wh}]
retention: {jobs: 7d, sessions: 90d, files: 30d}
auth: {jwt: {issuer: "https://sso.acme.io", audience: turnyard, tenant_claim: org, scope_claim: scope}}
"""
