"""The parts of methods' configs. Every default is one that has been run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from whet.config.acts import ActsUnless, ActsWhen, AnyOf, Inside
from whet.config.base import Config, NameOf
from whet.config.inputs import DatasetPlace, InputFile, ModelPlace


def _column_name(name: Any) -> Any:
    """Text. YAML takes braces without quotes for a mapping.

    Raises: ValueError where a template lost its quotes.
    """
    if isinstance(name, dict):
        raise ValueError("a template needs quotes of its own, as YAML takes its braces for a mapping: '\"{a} {b}\"'")
    return name


ColumnName = Annotated[str, Field(min_length=1), BeforeValidator(_column_name)]
SPLITS = ("train", "validation", "test")
DEFAULT_UNIT = 64
"""Rollouts of a unit, where workers take them and `cluster.unit` is not set."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Names of this machine, as no other machine reaches it."""
NUMBER_TYPES = {"bf16": "bfloat16", "fp32": "float32", "f32": "float32"}
"""Other names of number types."""


def number_type(name: Any) -> Any:
    """A number type by its usual name, also where it was given by another."""
    return NUMBER_TYPES.get(name.removeprefix("torch."), name.removeprefix("torch.")) if isinstance(name, str) else name


class LoraConfig(Config):
    """Train a low-rank adapter (arXiv:2106.09685) on every linear layer instead of all weights."""

    rank: int = Field(16, ge=1)
    """Rank of the adapter's matrices."""
    alpha: float = Field(32.0, gt=0)
    """The adapter's output is scaled by alpha / rank."""


class ModelConfig(Config):
    """Which weights a policy starts from."""

    kind: Literal["model"] = "model"
    path: ModelPlace = "tiny"
    """A folder written by save_pretrained, a hub id, or a model that ships with whet. These are 'tiny', of the tiny
    world; 'tiny_agent' and 'tiny_agent_early', which act in four environments; 'tiny_agent_careless', in TextCraft;
    'tiny_agent_worlds', in TextCraft, maze, academia and cookingworld."""
    random_weights: int | None = Field(None, ge=0, lt=2**63)
    """The seed from which all weights are drawn; the folder gives only the shape and the tokenizer. null: the folder's
    weights."""
    dtype: Annotated[Literal["float32", "bfloat16"], BeforeValidator(number_type)] = "float32"
    """Number type of weights and computation. On a GPU: bfloat16 (or bf16; fp32 is float32)."""
    device: str = "auto"
    """'auto' (the first GPU, else the CPU), 'cpu', 'cuda', 'cuda:1', ..."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    lora: LoraConfig | None = None
    """None: train all weights. Policies with lora and the same weights share one base model in memory."""


class EndpointConfig(Config):
    """A model behind an OpenAI-compatible endpoint, in the place of weights. It is never trained."""

    kind: Literal["endpoint"] = "endpoint"
    url: Annotated[str, Field(pattern="^https?://")]
    """Up to `/v1`: http://127.0.0.1:8000/v1. Without a user, a key or a query, as settings are written to files."""
    model: Annotated[str, Field(min_length=1)]
    """Its name there."""
    key_env: Annotated[str, Field(min_length=1)] = "OPENAI_API_KEY"
    """The environment variable that holds the key. No setting holds a key, as settings are written to files."""
    api: Literal["chat", "completion"] = "chat"
    """Chat completions; or plain ones, whose prompt is the messages' texts, one after the other."""
    max_concurrency: int = Field(16, ge=1)
    """Requests under way at one time."""
    timeout_s: float = Field(120.0, gt=0)
    """Of one request."""
    retries: int = Field(4, ge=0)
    """After 429, 5xx, timeouts and dropped connections, waiting longer each time."""
    max_tokens: int | None = Field(None, ge=1)
    """Tokens read and written in one session. Then the run ends, resumable, and a resumed session may use as many
    again. Where the server counts none: characters / 4. Cached replies are free. null: no limit."""
    max_reply_bytes: int = Field(4_000_000, ge=1000)
    """Bytes that are read of one answer, logprobs included (a hundred or two a token). A longer one is an
    `endpoint_error`, and is not asked for again."""
    max_model_len: int | None = Field(None, ge=1)
    """Positions of the model there. Prompt and reply of more tokens, as the server counts them, are an
    `endpoint_error`. null: not known; only max_tokens limits replies."""
    logprobs: bool = False
    """Ask for the logprobs of its replies."""
    check_model: bool = True
    """Fail where another model answers than was asked."""
    cache: str | None = ""
    """Replies are cached for all runs of a user, by url, model and request. Other weights under the same name are not
    noticed: give a different name here for each, which keeps their replies apart. null: no cache."""
    prefill: Literal["none", "continue"] = "none"
    """What to do where a reply has to begin in a given way. none: leave the beginning out, as no chat endpoint has to
    know it. continue: the conversation ends with the beginning, and the server continues it (`continue_final_message`,
    as vLLM, SGLang and `whet serve` know it). Plain completions continue any text."""
    more: Mapping[str, Any] = Field(default_factory=dict)
    """Further arguments of every request. No headers, query or keys: those come from the environment (`key_env`)."""

    @model_validator(mode="after")
    def check_secrets(self) -> Self:
        """The message shows no refused value: it may be a secret, and messages are logged."""
        parts = urlsplit(self.url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                "url may hold no user, password or query, as settings are written down: put the key into the "
                "environment variable that key_env names"
            )
        if secret := _secret_key(self.more):
            raise ValueError(
                f"more may hold no {secret}, as settings are written down: put the key into the environment variable "
                "that key_env names"
            )
        return self


SECRET_KEYS = re.compile(
    r"extra_headers|extra_query|api_?key|authorization|password|secret|credential|(access|auth|bearer)_token|^token$"
)
"""Names of arguments that may stand in no settings."""


def _secret_key(arguments: Any) -> str:
    """The first name in the arguments, at any depth, that looks like a secret's. Empty: none does."""
    inner = (
        arguments.values()
        if isinstance(arguments, Mapping)
        else arguments
        if isinstance(arguments, list | tuple)
        else ()
    )
    names = [str(name) for name in arguments] if isinstance(arguments, Mapping) else []
    secrets = [name for name in names if SECRET_KEYS.search(name.lower().replace("-", "_"))]
    return next(iter(secrets), "") or next(filter(None, map(_secret_key, inner)), "")


class SamplingConfig(Config):
    """How a role samples."""

    temperature: float = Field(1.0, ge=0)
    """0: greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of likeliest tokens with this mass. 1: from all."""
    max_new_tokens: int = Field(64, ge=1)
    """A reply that reaches it is cut, and counted as truncated."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a reply where they appear in it. They stay in the reply, but for an endpoint's whose server cuts
    them off without a word; vLLM's names them."""


class EngineConfig(Config):
    """The engine that samples, and how rollouts wait for services."""

    kind: Literal["local", "vllm"] = "local"
    """local: whet's own, in the run's process. vllm: servers of vLLM, which run already (`urls`) or which Ray starts
    (`cluster.servers`)."""
    urls: Annotated[tuple[str, ...], ActsWhen("kind", "vllm")] = ()
    """Of vLLM servers: http://127.0.0.1:8000. Each holds a whole model, and gets the weights of the policy that is
    sampled. Their routes ask for no password: keep them on loopback, or in a network of your own."""
    sync: Annotated[Literal["disk", "nccl"], ActsWhen("kind", "vllm")] = "disk"
    """How weights reach the servers. disk: a saved folder that they load. nccl is refused until a GPU has run it."""
    sync_folder: Annotated[str | None, ActsWhen("kind", "vllm")] = None
    """Where `sync=disk` saves the weights: a folder that all servers see under the same path. null: a temporary one of
    this machine, for servers on loopback."""
    limit_s: Annotated[float, ActsWhen("kind", "vllm")] = Field(600.0, gt=0, le=1e6)
    """Seconds that a server has to start, for each phase of an update, or for a reply. Past it the run ends, and names
    the phase."""
    placement: Annotated[Literal["servers", "colocated"], ActsWhen("kind", "vllm")] = "servers"
    """servers: beside the processes that train. colocated (on their GPUs) is refused until a GPU has run it."""
    max_rows: int = Field(256, ge=1)
    """Replies written at one time; key/value memory grows with it. Of all servers together."""
    prefill_tokens: Annotated[int, ActsWhen("kind", "local")] = Field(16384, ge=1)
    """Context tokens of one prefill pass."""
    products: Annotated[Literal["float32", "bfloat16", "int8", "auto"], ActsWhen("kind", "local")] = "float32"
    """What the engine multiplies weights in, on a CPU. Another type than float32 takes a packed copy of the weights,
    for the engine alone. bfloat16 needs amx_bf16 or avx512_bf16; int8 is for a few rows at a time, as in serving. auto:
    bfloat16 where the processor has either and all models are wider than 512, else float32; the run's config.yaml has
    its choice."""
    correct: bool = True
    """Where the engine's or the update's products are not float32: compare the update's ratios with the weights that
    the step starts from, and weigh each token by how these and the sampler differ, at most 2 (truncated importance
    sampling). A method's own proximal=true comes first."""
    draft: Annotated[int, ActsWhen("kind", "local")] = Field(0, ge=0, le=64)
    """Tokens at most that are drafted for a reply from what it repeats of its own text, and verified in one pass. Only
    where few replies are left, so it is for long tails, and for a reply at a time. Replies are the same tokens up
    to rounding, which is coarser in other products than float32. 0: no drafts."""
    graphs: Annotated[bool, ActsWhen("kind", "local")] = True
    """On a GPU, record the kernels of a step once, and start them all at once from then on (CUDA graphs). For models of
    the shapes of Llama, Mistral, Qwen2 and Qwen3."""
    rollout: Literal["lockstep", "free"] = "lockstep"
    """lockstep: a service answers all rollouts that ask it before any continues. free: each continues as soon as its
    own answer is there. Use it for rollouts of many turns, or that wait for something slow."""
    latency: Annotated[int | None, ActsWhen("rollout", "free")] = Field(0, ge=0)
    """With free: an answer of another service (a grader, an environment, an endpoint) is handed over after so many
    steps of the engine. So rollouts do not depend on the clock; late answers are waited for. 0: all are waited for
    at once. null: as they arrive, which is recorded and can be repeated."""
    arrivals: Annotated[InputFile | None, ActsWhen("latency", None)] = None
    """With latency=null: the arrivals.jsonl of another run, whose rollouts are to be repeated. null: none."""
    prefix_gib: Annotated[float, ActsWhen("rollout", "free"), ActsWhen("kind", "local")] = Field(1.0, ge=0)
    """With free: GiB for keys and values of replies that a rollout may continue."""

    @model_validator(mode="after")
    def check_servers(self) -> Self:
        settings = self.__dict__  # a look-up here counts as no read
        if settings["kind"] != "vllm":
            return self
        for key, value, works in (("sync", "nccl", "disk"), ("placement", "colocated", "servers")):
            if settings[key] == value:
                raise ValueError(
                    f"{key} = {value} has not been run on a GPU yet, and is refused until it has: {key}={works}"
                )
        for url in settings["urls"]:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
                raise ValueError(
                    f"urls are of the form http://127.0.0.1:8000, without a user or a query, not {url!r:.100}"
                )
            if parts.hostname not in LOOPBACK and settings["sync_folder"] is None:
                raise ValueError(
                    f"the server {parts.hostname} is another machine: give sync_folder, a folder that it and this "
                    "machine see under the same path"
                )
        return self


class ClusterConfig(Config):
    """Processes beside the run's own: ranks train, workers roll out, servers of vLLM sample."""

    ranks: int = Field(0, ge=0, le=4096)
    """Processes that share each policy's weights and train them together (FSDP2): one a GPU, or several on a CPU.
    Results depend on their number by rounding. 0: the run's own process trains."""
    workers: int = Field(0, ge=0, le=4096)
    """Processes that roll out, each with engines, graders and environments of its own. 0: the run's own process rolls
    out. Any number gives the same bits."""
    unit: int | None = Field(None, ge=1)
    """Rollouts that a worker takes at once. Results depend on it by rounding. null: 64 with workers, and all at once
    without. With workers=0 the run's own process rolls out the same units."""
    servers: int = Field(0, ge=0, le=4096)
    """Servers of vLLM that Ray starts for `engine.kind=vllm`: one a GPU, or several on a CPU. They end with the run. 0:
    none, or those of `engine.urls`."""
    server_command: Annotated[str, ActsWhen("servers")] = "vllm serve"
    """The command that starts one. vLLM mostly has a Python environment of its own: /path/to/venv/bin/vllm serve. The
    policy's folder, an address and the options that the run needs are put after it."""
    server_args: Annotated[str, ActsWhen("servers")] = ""
    """More options of that command: --gpu-memory-utilization 0.8 --max-model-len 8192."""
    address: Annotated[str | None, AnyOf(ActsWhen("ranks"), ActsWhen("workers"), ActsWhen("servers"))] = None
    """A running Ray cluster's address, or auto for the one that this machine belongs to. null: Ray starts here."""
    restarts: Annotated[int, AnyOf(ActsWhen("ranks"), ActsWhen("workers"), ActsWhen("servers"))] = Field(10, ge=0)
    """Processes that may die in a run and are started again. One more ends the run, with its last lines."""

    @field_validator("server_command", "server_args")
    @classmethod
    def check_words(cls, text: str, info: ValidationInfo) -> str:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{text!r:.200} cannot be split into words as a shell does: {error}") from error
        if not words and info.field_name == "server_command":
            raise ValueError("server_command is empty: give the command that starts a server, such as 'vllm serve'")
        return text

    @property
    def has_processes(self) -> bool:
        """Whether the run's own process is not alone."""
        return bool(self.ranks or self.workers or self.servers)

    @property
    def rollouts_a_unit(self) -> int | None:
        """`unit`, or its default. None: a runtime takes all rollouts at once."""
        return self.unit if self.unit is not None or not self.workers else DEFAULT_UNIT


class FaultsConfig(Config):
    """What becomes of rollouts that fail through no fault of the policy."""

    retries: int = Field(1, ge=0, le=100)
    """How often a sample that failed is retried, under a fresh seed."""
    budget: float = Field(0.5, gt=0, le=1)
    """The share of failures, of 200 rollouts begun in a row, past which the run ends with the first cause. 1: never."""
    stall_s: float = Field(300.0, ge=0)
    """Seconds without a sign of life from a service, after which the run names it, with all threads' stacks. 0: it is
    not watched."""


class LearningConfig(Config):
    """One policy's optimiser: AdamW with warm-up, then a cosine to a floor."""

    learning_rate: float = Field(1e-3, gt=0, le=1e30)
    """The peak."""
    final_share: float = Field(0.1, ge=0, le=1)
    """The cosine ends at this share of the peak. 1: constant after the warm-up."""
    warmup_steps: int = Field(0, ge=0, le=10**9)
    """Optimiser updates over which the rate rises linearly from 0."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    """Adam's decay rates."""
    weight_decay: float = Field(0.0, ge=0, le=1e30)
    """AdamW's, on all trained weights."""
    max_grad_norm: float = Field(1.0, gt=0)
    """The gradient is scaled down to this norm where it is larger."""
    minibatch_rows: int = Field(64, ge=1)
    """Rows of one optimiser update."""
    num_epochs: int = Field(1, ge=1)
    """Passes over a step's rows."""
    products: Literal["float32", "bfloat16"] = "float32"
    """What an update multiplies weights in, on a CPU. bfloat16 needs amx_bf16 or avx512_bf16; weights and optimiser
    stay float32, and engine.correct weighs tokens. The gradient's error is measured on the first batch."""
    token_budget: int = Field(4096, ge=1)
    """Tokens of one forward and backward pass; a context that several rows share counts once. Lower it where memory
    runs out: results do not change beyond rounding."""

    @property
    def rate_said(self) -> str:
        """In words."""
        end = "constant" if self.final_share == 1 else f"down to {self.final_share:g} of it"
        return f"learning rate {self.learning_rate:g}, {end}"

    def updates_a_step(self, num_rows: int) -> int:
        """Optimiser updates that a step with this many rows makes."""
        return self.num_epochs * -(-num_rows // self.minibatch_rows)


def products_of_updates(settings: Mapping[str, Any]) -> str:
    """What any update of a run multiplies in that is not float32, by all `LearningConfig`s in its settings.

    Args:
        settings: values of a config's fields, by name. A look-up counts as no read.
    """
    for value in settings.values():
        if isinstance(value, LearningConfig) and vars(value)["products"] != "float32":
            return str(vars(value)["products"])
        if isinstance(value, Config) and (found := products_of_updates(vars(value))) != "float32":
            return found
    return "float32"


class PolicyEvaluation(Config):
    """How a policy that answers alone is measured, before and after training."""

    num_samples: int = Field(4, ge=0, le=10_000)
    """Sampled replies a problem, for their mean, pass@k and majority. 0: the greedy reply only."""
    num_validation: int | None = Field(None, ge=1)
    """Validation problems in use. None: all."""
    num_test: int | None = Field(None, ge=1)
    """Test problems in use. None: all."""


class WatchConfig(Config):
    """What to do about a run that learns nothing, or is not the intended one. See docs/self-checks.md."""

    steps: int = Field(10, ge=0)
    """Steps in a row without credit after which the console and events.jsonl warn, with the likely cause; again when
    they have doubled. A warm start's loss is judged by twice as many. So many steps with a loss next to nothing, within
    ten times as many, get a warning too. 0: nothing is watched."""
    then: Annotated[Literal["warn", "stop"], ActsWhen("steps")] = "warn"
    """stop: where nothing is learnt the run also ends, saved, with exit code 1; `whet resume` continues it. A run whose
    replies are all right gets a warning, and continues."""
    flat_share: Annotated[float, ActsWhen("steps")] = Field(0.8, gt=0, le=1)
    """Share of a step's groups. Where more teach nothing for `steps` in a row, the console warns. 1: never."""
    kl_warn: float | None = Field(0.1, gt=0)
    """The console warns above so many nats a token from sampler to trainer, before a step's first update. The limit is
    five times as high where older weights sampled the rows. None: never."""
    kl_stop: float | None = Field(1.0, gt=0)
    """As kl_warn, on rows of the same weights alone; above it the run ends, saved, with exit code 1. None: never."""
    same_start: Literal["stop", "warn"] = "stop"
    """What to do where an environment begins one item under one seed in two ways, or where members of a group got other
    prompts. Their rewards cannot be compared, and no seed repeats the run."""

    @model_validator(mode="after")
    def _warns_first(self) -> Self:
        if self.kl_warn is not None and self.kl_stop is not None and self.kl_stop < self.kl_warn:
            raise ValueError(
                f"kl_stop = {self.kl_stop:g} is below kl_warn = {self.kl_warn:g}, so the run would end before it is "
                "warned of anything: raise kl_stop, or lower kl_warn"
            )
        return self


class CallbacksConfig(Config):
    """Your callbacks, which are told what the run does. See docs/plugins.md."""

    use: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], NameOf("callback")] = ()
    """Registered callbacks, in the order in which they are called."""
    on_error: Annotated[Literal["warn", "stop"], ActsWhen("use")] = "warn"
    """What to do where a callback raises. warn: the console and events.jsonl say so once. stop: the run also ends after
    the step, saved, with exit code 1."""


class ColumnNames(Config):
    """Your names of the columns, where they follow no known row format. Dots lead inside: extra_info.question,
    messages.0.content. A name with braces is a template of several columns: "{context}\\n\\n{question}"; {{ and }} in
    it are braces. A column that has just that name goes before a path or a template."""

    prompt: ColumnName | None = None
    """The question. None: question, problem or prompt."""
    answer: ColumnName | None = None
    """The reference answer; of text with ####, the part after it. None: answer, or the box of a solution."""
    solution: ColumnName | None = None
    """Worked solutions, which a warm start imitates. None: solution, where there is one."""

    def given(self) -> dict[str, str]:
        """Those that have a name of yours."""
        names = {"prompt": self.prompt, "answer": self.answer, "solution": self.solution}
        return {which: name for which, name in names.items() if name is not None}


class SplitNames(Config):
    """Names of the splits of a hub's set."""

    train: str | None = None
    """None: train."""
    validation: str | None = None
    """None: validation, where the set has one."""
    test: str | None = None
    """None: test, where the set has one."""


_LACKS_FILE = AnyOf(*(ActsUnless(f"{split}_path") for split in SPLITS))
"""Some split has no file of its own."""


class FileData(Config):
    """Questions and answers from files, or from a set of the Hugging Face hub (`whet.tasks.sources`)."""

    kind: Literal["file"] = "file"
    path: Annotated[InputFile | None, _LACKS_FILE] = None
    """JSON lines, a JSON list or Parquet, for all splits that have no file of their own. They share it by a hash of the
    question."""
    train_path: InputFile | None = None
    """The training questions. Where validation or test have no file, and there is no path, they are shares of it."""
    validation_path: InputFile | None = None
    """The questions on which checkpoints are chosen, all of the file."""
    test_path: InputFile | None = None
    """The questions of the final table and of `whet eval`, all of the file. One that is also in another file is left
    out there, and never here."""
    hub: Annotated[DatasetPlace | None, _LACKS_FILE] = None
    """In place of path: a data set's id on the Hugging Face hub, such as openai/gsm8k, or a folder that `datasets`
    reads. The splits that it lacks are shares of its training questions. Needs the extra `data` (make setup
    EXTRAS=data)."""
    revision: Annotated[Annotated[str, Field(min_length=1)] | None, ActsWhen("hub")] = None
    """Of the hub's set: a commit, a branch or a tag. A run records the commit that it stands for. None: the newest."""
    subset: Annotated[Annotated[str, Field(min_length=1)] | None, ActsWhen("hub")] = None
    """Of the hub's set, where it has several: main of openai/gsm8k."""
    splits: Annotated[
        SplitNames, ActsWhen("hub"), *(Inside(split, ActsUnless(f"{split}_path")) for split in SPLITS)
    ] = SplitNames()
    columns: ColumnNames = ColumnNames()
    grader: Annotated[str, Field(min_length=1), NameOf("grader")] = "math_verify"
    """How replies are graded: math_verify, chains, published:gsm8k (or svamp, math, aqua, mathqa, theoremqa), or a
    plug-in's grader, by name. The published ones follow the authors' code, to compare with its numbers."""
    timeout_s: float = Field(5.0, gt=0)
    """Seconds that comparing an answer may take. Past it the answer is wrong, and counted as having exhausted its
    grading. With a plug-in's grader it has no score, and is left out."""
    # With a file of the training questions, and one of another split, `path` is the whole of the third.
    validation_share: Annotated[
        float,
        ActsUnless("validation_path"),
        ActsUnless("splits.validation"),
        AnyOf(ActsUnless("path"), ActsUnless("train_path"), ActsUnless("test_path")),
    ] = Field(0.1, gt=0, lt=1)
    """Share of the questions, by a hash of their text, where validation has no file of its own."""
    test_share: Annotated[
        float,
        ActsUnless("test_path"),
        ActsUnless("splits.test"),
        AnyOf(ActsUnless("path"), ActsUnless("train_path"), ActsUnless("validation_path")),
    ] = Field(0.1, gt=0, lt=1)
    """Likewise. Never used for training or for choosing a checkpoint."""
    limit: int | None = Field(None, ge=1)
    """Take only the first so many questions of each file. None: all."""
    shuffle: bool = True
    """Train on the questions in an order drawn by the run's seed. False: in the file's order, as a curriculum needs."""

    @model_validator(mode="after")
    def check_sources(self) -> Self:
        if self.path is not None and self.hub is not None:
            raise ValueError("path and hub both say where the questions are: give one of the two")
        if self.hub is None and not (self.path or self.train_path or self.validation_path or self.test_path):
            raise ValueError(
                "kind=file has no questions: give data.path, or data.train_path and data.test_path, or data.hub"
            )
        return self


def _rising(shares: tuple[float, float]) -> tuple[float, float]:
    """Raises: ValueError where the first is above the second."""
    if shares[0] > shares[1]:
        raise ValueError(f"[{shares[0]:g}, {shares[1]:g}] must rise: give the lower share first")
    return shares


Misconceptions = Annotated[
    tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]], AfterValidator(_rising)
]
"""How often an author writes what it misconceives: the lowest and the highest share of the times. Each fact has a share
between them."""


class ChainData(Config):
    """The tiny world: chains of last-digit arithmetic (`whet.tasks.chains`)."""

    kind: Literal["chains"] = "chains"
    min_steps: int = Field(3, ge=1)
    """Operations in the shortest problems."""
    max_steps: int = Field(6, ge=1, le=12)
    """Operations in the longest. The shipped model was pretrained on 3 to 6; more are harder."""
    num_train: int = Field(20000, ge=1)
    """Training problems; one step takes the next few."""
    num_validation: int = Field(256, ge=1)
    """Problems on which checkpoints are chosen."""
    num_test: int = Field(1000, ge=1)
    """Problems of the final table."""
    misconceptions: Misconceptions | None = None
    """How often the textbook's author writes what it misconceives, in the answers and refinements that a warm start
    imitates. These are the lowest and the highest share of the times; each fact has a share between them. With
    [0.9, 0.98] sampling again seldom finds the right answer. null: [0.35, 0.75], as for the shipped model."""


class BasicsMix(Config):
    """How often each kind of problem is drawn, by weight. 0: never."""

    sum: float = Field(1.0, ge=0)
    """Of two numbers."""
    product: float = Field(1.0, ge=0)
    """Of two numbers, one of them at most 9."""
    extreme: float = Field(1.0, ge=0)
    """The largest or the smallest of three numbers."""
    next: float = Field(1.0, ge=0)
    """Number of an arithmetic sequence."""
    sort: float = Field(1.0, ge=0)
    """Three words into alphabetical order."""
    story: float = Field(1.0, ge=0)
    """A sum or a difference, told in a sentence."""


class BasicsData(Config):
    """Short problems that a small pretrained model can learn: arithmetic, order, one-step stories
    (`whet.tasks.basics`)."""

    kind: Literal["basics"] = "basics"
    mix: BasicsMix = BasicsMix()
    max_term: int = Field(20, ge=3, le=10**6)
    """Largest term of sums, and number of stories."""
    max_factor: int = Field(20, ge=3, le=10**6)
    """Largest factor of products."""
    max_number: int = Field(99, ge=4, le=10**6)
    """Largest number to compare, and to begin a sequence with."""
    max_step: int = Field(9, ge=1, le=10**6)
    """Largest difference within a sequence."""
    seed: int = Field(0, ge=0)
    """Of the problems, not of runs. Other seeds give other problems; a problem is in the same split with all."""
    num_train: int = Field(4000, ge=1)
    """Training problems."""
    num_validation: int = Field(60, ge=1)
    """Problems on which checkpoints are chosen."""
    num_test: int = Field(300, ge=1)
    """Problems of the final table."""


class GymData(Config):
    """Questions made by one generator of reasoning-gym, graded by its scorer (`whet.tasks.gym`)."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str = "chain_sum"
    """The generator's name in reasoning-gym. It has about a hundred, each documented in its repository."""
    params: dict[str, Any] = Field({})
    """The generator's settings, such as {min_terms: 2, max_terms: 4}. Those not given keep the generator's default."""
    seed: int = Field(0, ge=0)
    """Of the questions, not of runs. Other seeds give other questions; a question is in the same split with all."""
    num_train: int = Field(4000, ge=1)
    """Training questions. New questions fall to the splits as 8 : 1 : 1, and are made until every split has its
    number. So a test question costs ten times the time of one."""
    num_validation: int = Field(256, ge=1)
    """Questions on which checkpoints are chosen."""
    num_test: int = Field(500, ge=1)
    """Questions of the final table."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds that scoring an answer may take. Past it the answer is wrong, and counted as having exhausted its
    grading."""
