"""Settings: how one warden runs. Values come from a YAML file and the environment; agent.settings_file reads both.

Secrets come from files of their own or from the environment and are never shown, not even in an error. What the fields
mean to an operator is in docs/settings.md.
"""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from agent.decision.policy import Minimum, Policy
from agent.election.settings import ElectionSettings
from serving.engines.state_directory import default_state_directory
from serving.fleet.fleet_file import FleetFile, ModelEntry, Name
from serving.secret_file import read_secret
from serving.yaml_file import FileError, Problem

PREFIX = "FLEETWARDEN_"
NESTING = "__"
HIDDEN = "**********"


def _http_url(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value().strip()
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(map(str.isspace, text)):
        raise ValueError("is not an http:// or https:// URL (it is not repeated here, as it may hold a secret)")
    return SecretStr(text)


SecretUrl = Annotated[SecretStr, AfterValidator(_http_url)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Strict(BaseModel):
    """Frozen, unknown keys refused, and no input repeated in an error: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class LoopSettings(_Strict):
    """The pace of the loop."""

    interval: Annotated[float, Field(ge=0.1, le=300)] = Field(
        2.0, description="seconds from one step, and so from one reading of the telemetry, to the next"
    )
    observe_deadline: Seconds = Field(1.8, description="seconds that all telemetry sources together may take in one step")
    history: Annotated[float, Field(ge=60, le=86_400)] = Field(
        600.0, description="seconds of measurements that detectors see"
    )

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.observe_deadline > self.interval:
            raise ValueError(
                f"observe_deadline of {self.observe_deadline:g} s is longer than the interval of {self.interval:g} s"
            )
        return self


class JournalSettings(_Strict):
    """Where the journal is kept."""

    path: Path | None = Field(None, description="SQLite file; none: journal.sqlite in the state directory")
    url: SecretStr | None = Field(None, description="SQLAlchemy URL of another database; only from the environment")
    url_file: Path | None = Field(None, description="file that holds the SQLAlchemy URL")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path is not None and (self.url is not None or self.url_file is not None):
            raise ValueError("names both a file (`path`) and a database (`url`): keep one of them")
        return self


class SlackSettings(_Strict):
    """One Slack incoming webhook, which posts into the channel it was made for."""

    webhook_url: SecretUrl | None = Field(None, description="the webhook's URL; only from the environment")
    webhook_url_file: Path | None = Field(None, description="file that holds the webhook's URL")
    patience: Annotated[float, Field(ge=0, le=86_400)] = Field(
        120.0, description="seconds that an incident may be open before it is told although no person is needed yet"
    )
    timeout: Annotated[float, Field(gt=0, le=60)] = Field(
        10.0, description="seconds one message may take, all tries together"
    )

    @property
    def has_url(self) -> bool:
        """Whether the webhook is named at all."""
        return self.webhook_url is not None or self.webhook_url_file is not None

    def url(self) -> SecretStr:
        """The webhook's URL. Raises ValueError (FileError for its file) when there is none; neither repeats it."""
        if self.webhook_url is not None:
            return self.webhook_url
        if self.webhook_url_file is None:
            raise ValueError("no Slack webhook is named")
        try:
            return _http_url(read_secret(self.webhook_url_file))
        except FileError:
            raise
        except ValueError as refused:
            raise FileError([Problem(str(self.webhook_url_file), 0, "", str(refused))]) from None


class WebhookSettings(_Strict):
    """One HTTP receiver of CloudEvents."""

    name: Name = Field(max_length=64, description="name of the receiver, in metrics and in the journal")
    url: SecretUrl = Field(description="where events are posted; shown without path and query, as these may hold a secret")
    signing_secret_file: Path | None = Field(
        None, description="file with the secret that signs each request; none: unsigned"
    )
    timeout: Annotated[float, Field(gt=0, le=60)] = Field(10.0, description="seconds one event may take, all tries together")

    def signing_secret(self) -> SecretStr | None:
        """The signing secret, if one is named. Raises FileError when its file cannot be used."""
        return None if self.signing_secret_file is None else read_secret(self.signing_secret_file)


class SinkSettings(_Strict):
    """Who is told what happened."""

    log: bool = Field(True, description="a log line for each transition of an incident")
    slack: SlackSettings | None = Field(None, description="Slack, one message an incident")
    webhooks: list[WebhookSettings] = Field(default_factory=list, description="HTTP receivers, one event a transition")

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [webhook.name for webhook in self.webhooks]
        if len(set(names)) < len(names):
            raise ValueError("has two webhooks of the same name: each remembers under its name how far it was told")
        return self


class HttpSettings(_Strict):
    """The warden's own HTTP listener: /metrics, /healthz, /readyz."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Annotated[int, Field(ge=0, le=65_535)] = Field(9470, description="port to listen on; 0: any free one")


class WardenSettings(BaseSettings):
    """Everything one warden is told. Construct it with agent.settings_file.load_settings, which explains mistakes."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=NESTING,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_default=True,
    )

    cell: Name | None = Field(None, description="name of the cell; none: the fleet file's")
    dry_run: bool = Field(False, description="true: every action is rehearsed against the live world, and none is done")
    state_dir: Path = Field(
        default_factory=default_state_directory, description="directory of fleet file, journal and engine records"
    )
    fleet: Path | None = Field(None, description="the fleet file; none: fleet.yaml in the state directory")
    detectors: Path | None = Field(None, description="file with detector parameters that differ from the built-in ones")
    runbooks: list[Path] = Field(default_factory=list, description="directories with runbooks besides the built-in ones")
    loop: LoopSettings = Field(default_factory=LoopSettings, description="the pace of the loop")
    journal: JournalSettings = Field(default_factory=JournalSettings, description="where the journal is kept")
    election: ElectionSettings = Field(default_factory=ElectionSettings, description="which of several wardens acts")
    policy: Policy = Field(default_factory=Policy, description="how far and how fast the warden may go")
    sinks: SinkSettings = Field(default_factory=SinkSettings, description="who is told what happened")
    http: HttpSettings = Field(default_factory=HttpSettings, description="the warden's own HTTP listener")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature; .env files are not read
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment first, then what the constructor is given (the file)."""
        return env_settings, init_settings

    @property
    def fleet_file(self) -> Path:
        """The path of the fleet file."""
        return self.fleet or self.state_dir / "fleet.yaml"

    def journal_url(self) -> SecretStr:
        """The journal's SQLAlchemy URL. Raises FileError when the file that should hold it cannot be used."""
        if self.journal.url is not None:
            return self.journal.url
        if self.journal.url_file is not None:
            return read_secret(self.journal.url_file)
        path = self.journal.path or self.state_dir / "journal.sqlite"
        return SecretStr(f"sqlite:///{path.absolute()}")

    def cell_of(self, fleet: FleetFile) -> str:
        """The cell this warden looks after."""
        stated = self.policy.cell if "cell" in self.policy.model_fields_set else None
        return self.cell or stated or fleet.cell

    def policy_for(self, fleet: FleetFile) -> Policy:
        """The policy with the fleet file's cell and serving budgets; what the policy itself says of a model wins."""
        stated = {entry.name: _minimum(entry) for entry in fleet.models}
        serving = self.policy.serving.model_copy(update={"models": stated | self.policy.serving.models})
        return self.policy.model_copy(update={"cell": self.cell_of(fleet), "serving": serving})

    def describe(self) -> str:
        """The effective settings as YAML, with secrets masked."""
        content = self.model_dump(mode="json")
        for shown, webhook in zip(content["sinks"]["webhooks"], self.sinks.webhooks, strict=True):
            shown["url"] = without_secrets(webhook.url)
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def without_secrets(url: SecretStr) -> str:
    """Scheme, host and port of `url`: enough to know which receiver is meant, without what may be a secret."""
    parts = urlsplit(url.get_secret_value())
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/{HIDDEN}"


def _minimum(entry: ModelEntry) -> Minimum:
    if entry.min_healthy is not None:
        return Minimum(engines=entry.min_healthy)
    return Minimum(share=entry.min_healthy_fraction)
