"""The sections of turnyard.yaml: every key there is, its type and its default. Times without a unit are seconds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from turnyard.settings.base import Count, Duration, Positive, Section

Filled = Annotated[str, Field(min_length=1)]


def _some_time(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be more than zero, or nobody could ever decide")
    return value


class RedisSection(Section):
    """Where Redis is. `durable_ack` is what an accepted message waits for beyond the server's own memory and file.

    `shards` counts at the first start and is checked later; `lifted_url` is the plain server of lifted tools, which a
    cluster needs.
    """

    url: str | None = None
    username: str | None = None
    password: SecretStr | None = None
    tls_ca_file: Path | None = None
    durable_ack: Literal["none", "replica", "fsync"] = "none"
    shards: Annotated[int | None, Field(ge=1, le=256)] = None
    lifted_url: str | None = None

    def connection_url(self) -> str | None:
        """Return the URL with what other keys say of the connection in it; None when no URL is set."""
        if self.url is None:
            return None
        parts = urlsplit(self.url)
        place = parts.netloc
        if self.username is not None or self.password is not None:
            secret = self.password.get_secret_value() if self.password else ""
            place = f"{quote(self.username or '', safe='')}:{quote(secret, safe='')}@{place.rpartition('@')[2]}"
        said = dict(parse_qsl(parts.query))
        more = {
            "ssl_ca_certs": str(self.tls_ca_file) if self.tls_ca_file else None,
            "durable_ack": self.durable_ack if self.durable_ack != "none" else None,
            "shards": str(self.shards) if self.shards else None,
        }
        new = urlencode({name: value for name, value in more.items() if value and name not in said})
        return urlunsplit(parts._replace(netloc=place, query="&".join(filter(None, (parts.query, new)))))


class ProviderSection(Section):
    """How one model provider is reached, and how much of it the whole fleet may use per minute."""

    api_key: SecretStr | None = None
    base_url: str | None = None
    rpm: Positive | None = None
    tpm: Positive | None = None
    prices: dict[str, dict[str, float]] = Field(default_factory=dict)


class LimitsSection(Section):
    """What the deployment admits."""

    max_concurrent_turns: Positive = 200
    inbox_per_session: Positive = 100
    queue_per_tenant: Positive = 10_000
    message_bytes: Positive = 262_144


class TimingSection(Section):
    """How fast death is noticed and work is shared out."""

    lease_ms: Positive = 10_000
    beat_ms: Positive = 2_000
    begin_by_ms: Positive = 3_000
    tick_ms: Positive = 1_000
    quantum_ms: Positive = 30_000

    @model_validator(mode="after")
    def _beats_fit(self) -> TimingSection:
        if self.lease_ms < 3 * self.beat_ms:
            raise ValueError(
                f"lease_ms ({self.lease_ms}) must be at least three beats ({3 * self.beat_ms}), or one late beat ends a healthy worker"
            )
        return self


class PoolSection(Section):
    """The workers of one kind."""

    max_concurrent_turns: Positive | None = None


class TenantSection(Section):
    """What one tenant may use. `weight` is its share when several wait."""

    weight: Positive = 1
    max_concurrent_turns: Positive | None = None
    tokens_per_day: Positive | None = None
    agents: list[str] | None = None
    webhook_secret: SecretStr | None = None


class AgentSection(Section):
    """What changes an agent of the code, or makes a whole one."""

    model: str | list[str] | None = None
    instructions: str | None = None
    tools: list[str] | None = None
    mode: Literal["steer", "follow_up", "collect", "interrupt", "rollback", "reject"] | None = None
    debounce: Duration | None = None
    pool: str | None = None
    limits: dict[str, Any] = Field(default_factory=dict)


class ApprovalSection(Section):
    """Who may allow which calls, and for how long the question stands.

    `tools` are names or globs of names (`crm_set_*`). `approvers` are user ids or globs of them; an empty list is whoever may
    use the API. With `remember: session` they may allow a tool for the whole session; without `self_approve` not their own calls.
    """

    tools: Annotated[list[Filled], Field(min_length=1)]
    approvers: list[Filled]
    post_to: str = "here"
    expires_in: Annotated[Duration, AfterValidator(_some_time)] = timedelta(minutes=15)
    remember: Literal["once", "session"] = "once"
    self_approve: bool = False


class SlackSection(Section):
    """One Slack app. Socket mode needs `app_token`, HTTP mode `signing_secret`."""

    mode: Literal["socket", "http"] = "socket"
    bot_token: SecretStr | None = None
    app_token: SecretStr | None = None
    signing_secret: SecretStr | None = None
    tenant: str = "default"


class FeishuSection(Section):
    """One Feishu or Lark app."""

    domain: Literal["feishu", "lark"] = "feishu"
    mode: Literal["webhook", "socket"] = "webhook"
    app_id: str | None = None
    app_secret: SecretStr | None = None
    encrypt_key: SecretStr | None = None
    verification_token: SecretStr | None = None
    tenant: str = "default"


class TelegramSection(Section):
    """One Telegram bot."""

    mode: Literal["poll", "webhook"] = "poll"
    bot_token: SecretStr | None = None
    webhook_secret: SecretStr | None = None
    tenant: str = "default"


class HttpSection(Section):
    """Where the API listens, and how the outside world reaches it (`public_url` starts callback URLs).

    `allow_open` permits an address that others can reach although the API asks nobody who they are.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8420
    public_url: str | None = None
    allow_open: bool = False


class PlatformsSection(Section):
    """The doors that are open."""

    http: HttpSection = Field(default_factory=HttpSection)
    slack: SlackSection | None = None
    feishu: FeishuSection | None = None
    telegram: TelegramSection | None = None


class AllowSection(Section):
    """Who may talk to an agent. Guests, outsiders and bots are refused unless a route lets them in."""

    users: list[str] = Field(default_factory=lambda: ["*"])
    guests: bool = False
    external: bool = False
    bots: bool = False


class FilesSection(Section):
    """Which attachments are taken in."""

    max_bytes: Positive = 20_000_000
    types: list[str] = Field(default_factory=lambda: ["image/*", "application/pdf"])


class BudgetSection(Section):
    """What one user may spend."""

    user_tokens_per_day: Positive | None = None


Trigger = Literal["mention", "all", "thread", "match", "none"]
Stream = Literal["edit", "native", "final"]


class DefaultsSection(Section):
    """How routes behave where they say nothing themselves."""

    trigger: Trigger = "mention"
    scope: Literal["thread", "channel", "user"] = "thread"
    reply: Literal["thread", "flat"] = "thread"
    stream: Stream = "edit"
    react: dict[str, str] = Field(default_factory=dict)
    allow: AllowSection = Field(default_factory=AllowSection)
    admins: list[str] = Field(default_factory=list)
    files: FilesSection = Field(default_factory=FilesSection)
    errors: str = "Something broke (ref {ref})."
    budget: BudgetSection = Field(default_factory=BudgetSection)
    attribution: bool = True
    tool_lines: Count = 2


class MatchSection(Section):
    """Which events a route takes."""

    platform: str | None = None
    kind: Literal["dm", "group", "channel"] | None = None
    channel: list[str] | None = None
    text: str | None = None


class RouteSection(Section):
    """Which agent answers where. The first route that matches wins."""

    name: str
    match: MatchSection = Field(default_factory=MatchSection)
    agent: str
    trigger: Trigger | None = None
    mode: str | None = None
    scope: Literal["thread", "channel", "user"] | None = None
    reply: Literal["thread", "flat"] | None = None
    stream: Stream | None = None
    strip: bool = False
    admins: list[str] | None = None
    allow: AllowSection | None = None


class ScheduleSection(Section):
    """A message that comes by the clock."""

    name: str
    cron: str
    tz: str = "UTC"
    agent: str
    input: str
    deliver_to: str | None = None
    interactive: bool = False


class WebhookSection(Section):
    """An address that is told what happens."""

    url: str
    events: list[str]
    secret: SecretStr | None = None


class StoredFilesSection(Section):
    """Where files and long results are kept, and how much of them.

    `url` is `redis` (the deployment's own server, for files up to 8 MB), `file:///path` of a directory that all roles share, or
    `s3://bucket/prefix?endpoint=...&region=...`. Without keys a bucket is reached as AWS's own tools reach it.
    """

    url: str = "redis"
    max_bytes: Positive = 20_000_000
    per_tenant_bytes: Positive | None = None
    per_tenant_files: Positive = 10_000
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        parts = urlsplit(url)
        if url == "redis" or (parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")):
            return url
        if parts.scheme == "s3" and parts.netloc and "@" not in parts.netloc:
            return url
        raise ValueError("files are kept in redis, file:///path (an absolute one) or s3://bucket/prefix?endpoint=...&region=...")


class RetentionSection(Section):
    """How long finished things are kept."""

    jobs: Duration = timedelta(days=7)
    sessions: Duration = timedelta(days=90)
    files: Duration = timedelta(days=30)


class JwtSection(Section):
    """Tokens of an identity provider that the API accepts."""

    issuer: str
    audience: str
    tenant_claim: str = "tenant"
    scope_claim: str = "scope"


class AuthSection(Section):
    """Who may use the API besides holders of keys."""

    jwt: JwtSection | None = None


class ClientSection(Section):
    """Where this machine's client commands go, and who decides approvals here (else who is logged in)."""

    url: str | None = None
    api_key: SecretStr | None = None
    tenant: str = "default"
    user: str | None = None


class LogSection(Section):
    """What is logged and how: text for people, JSON for machines, auto by what stderr is."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"


class Settings(Section):
    """All of turnyard.yaml, and what only this machine knows."""

    version: Literal[1] = 1
    state_dir: Path = Path(".turnyard")
    redis: RedisSection = Field(default_factory=RedisSection)
    client: ClientSection = Field(default_factory=ClientSection)
    log: LogSection = Field(default_factory=LogSection)
    models: dict[str, str | list[str]] = Field(default_factory=dict)
    providers: dict[str, ProviderSection] = Field(default_factory=dict)
    limits: LimitsSection = Field(default_factory=LimitsSection)
    timing: TimingSection = Field(default_factory=TimingSection)
    pools: dict[str, PoolSection] = Field(default_factory=lambda: {"default": PoolSection()})
    tenants: dict[str, TenantSection] = Field(default_factory=dict)
    agents: dict[str, AgentSection] = Field(default_factory=dict)
    approvals: list[ApprovalSection] = Field(default_factory=list)
    platforms: PlatformsSection = Field(default_factory=PlatformsSection)
    defaults: DefaultsSection = Field(default_factory=DefaultsSection)
    routes: list[RouteSection] = Field(default_factory=list)
    schedules: list[ScheduleSection] = Field(default_factory=list)
    webhooks: list[WebhookSection] = Field(default_factory=list)
    files: StoredFilesSection = Field(default_factory=StoredFilesSection)
    retention: RetentionSection = Field(default_factory=RetentionSection)
    auth: AuthSection = Field(default_factory=AuthSection)
