"""The pieces that methods' configs are made of. Every default is one that has been run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

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

NUMBER_TYPES = {"bf16": "bfloat16", "fp32": "float32", "f32": "float32"}
"""What people call them too."""


def number_type(name: Any) -> Any:
    """By its usual name, also where it was given by another."""
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
    """A folder written by save_pretrained, a hub id, or a model that ships with whet: 'tiny', of the tiny world;
    'tiny_agent' and 'tiny_agent_early', which act in four environments; 'tiny_agent_careless', in TextCraft."""
    random_weights: int | None = Field(None, ge=0, lt=2**63)
    """The seed that all weights are drawn from; of the folder, only the shape and the tokenizer are taken. null: the
    folder's weights."""
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
    """Up to `/v1`: http://127.0.0.1:8000/v1. Without a user, a key or a query, as it is written down."""
    model: Annotated[str, Field(min_length=1)]
    """Its name there."""
    key_env: Annotated[str, Field(min_length=1)] = "OPENAI_API_KEY"
    """The environment variable that holds the key. Keys stand in no settings, as those are written down."""
    api: Literal["chat", "completion"] = "chat"
    """Chat completions; or plain ones, whose prompt is the messages' texts, one after the other."""
    max_concurrency: int = Field(16, ge=1)
    """Requests on their way at one time."""
    timeout_s: float = Field(120.0, gt=0)
    """Of one request."""
    retries: int = Field(4, ge=0)
    """After 429, 5xx, timeouts and dropped connections, waiting longer each time."""
    max_tokens: int | None = Field(None, ge=1)
    """Read and written in one session; the run ends, resumable, once they are spent, and a session that goes on may
    have as many again. Where the server counts none: characters / 4. Kept replies are free. null: no limit."""
    max_reply_bytes: int = Field(4_000_000, ge=1000)
    """Bytes that are read of one answer, logprobs included (a hundred or two a token). A longer one is an
    `endpoint_error`, and is not asked for again."""
    max_model_len: int | None = Field(None, ge=1)
    """Positions of the model there: prompt and reply of more tokens, as the server counts them, are an
    `endpoint_error`. null: nobody knows them, and replies are held against max_tokens alone."""
    logprobs: bool = False
    """Ask for the logprobs of what it writes."""
    check_model: bool = True
    """Fail where another model answers than was asked."""
    cache: str | None = ""
    """Replies are kept for all runs of a user, by url, model and request. A server that serves other weights under the
    same name is not noticed: give another name here for each, which keeps their replies apart. null: none is kept."""
    prefill: Literal["none", "continue"] = "none"
    """Where a reply is to begin in a given way. none: it is left out, as no chat endpoint has to know it. continue: the
    conversation ends with the beginning, and the server is told to go on from it (`continue_final_message`, as vLLM,
    SGLang and `whet serve` know it); plain completions go on from any text."""
    more: Mapping[str, Any] = Field(default_factory=dict)
    """Further arguments of every request. No headers, query or keys: those come from the environment (`key_env`)."""

    @model_validator(mode="after")
    def check_secrets(self) -> Self:
        """Nothing that is refused is shown: it may be a secret, and sentences are logged."""
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
"""In names of arguments, as what must stand in no settings."""


def _secret_key(given: Any) -> str:
    """The first of the names in it, at any depth, that looks like a secret's. Empty: none does."""
    inner = given.values() if isinstance(given, Mapping) else given if isinstance(given, list | tuple) else ()
    names = [str(name) for name in given] if isinstance(given, Mapping) else []
    found = [name for name in names if SECRET_KEYS.search(name.lower().replace("-", "_"))]
    return next(iter(found), "") or next(filter(None, map(_secret_key, inner)), "")


class SamplingConfig(Config):
    """How a role samples."""

    temperature: float = Field(1.0, ge=0)
    """0: greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of likeliest tokens with this mass. 1: from all."""
    max_new_tokens: int = Field(64, ge=1)
    """A reply that reaches it is cut, and counted as truncated."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a reply where they appear in it."""


class EngineConfig(Config):
    """The in-process engine, and how plays are driven."""

    max_rows: int = Field(256, ge=1)
    """Replies written at one time; key/value memory grows with it."""
    prefill_tokens: int = Field(16384, ge=1)
    """Context tokens of one prefill pass."""
    rollout: Literal["lockstep", "free"] = "lockstep"
    """lockstep: what all plays ask of one service is answered before any goes on. free: each goes on as soon as its own
    answer is there; for plays of many turns, or that wait for something slow."""
    latency: Annotated[int | None, ActsWhen("rollout", "free")] = Field(0, ge=0)
    """With free: steps of the engine after which an answer of another service (a grader, an environment, an endpoint)
    is handed over, so that plays are the same whatever the clock does; late ones are waited for. 0: all are waited for
    at once. null: as they arrive, which is written down and can be repeated."""
    arrivals: Annotated[InputFile | None, ActsWhen("latency", None)] = None
    """With latency=null: the arrivals.jsonl of another run, whose plays are to be the same. null: whatever comes."""
    prefix_gib: Annotated[float, ActsWhen("rollout", "free")] = Field(1.0, ge=0)
    """With free: memory for keys and values of replies that a play may go on from."""


class FaultsConfig(Config):
    """What becomes of plays that fail through no fault of the policy."""

    retries: int = Field(1, ge=0, le=100)
    """How often a sample that failed is played again, under a fresh seed."""
    budget: float = Field(0.5, gt=0, le=1)
    """The share of failed plays, of the last 200, past which the run ends with the first cause. 1: never."""
    stall_s: float = Field(300.0, ge=0)
    """Seconds without a sign of life from a service, after which the run says which, and where all threads are. 0: it
    is not watched."""


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
    token_budget: int = Field(4096, ge=1)
    """Tokens of one forward and backward pass; a context that several rows share counts once. Lower it where memory
    runs out: results do not change beyond rounding."""

    @property
    def rate_said(self) -> str:
        """In words, for people."""
        end = "constant" if self.final_share == 1 else f"down to {self.final_share:g} of it"
        return f"learning rate {self.learning_rate:g}, {end}"

    def updates_a_step(self, num_rows: int) -> int:
        """Optimiser updates that a step with this many rows makes."""
        return self.num_epochs * -(-num_rows // self.minibatch_rows)


class PolicyEvaluation(Config):
    """What is measured of a policy that answers alone, before and after training."""

    num_samples: int = Field(4, ge=0, le=10_000)
    """Sampled replies a problem, for their mean, pass@k and majority. 0: the greedy reply only."""
    num_validation: int | None = Field(None, ge=1)
    """Validation problems in use. None: all."""
    num_test: int | None = Field(None, ge=1)
    """Test problems in use. None: all."""


class WatchConfig(Config):
    """What is done about a run that learns nothing, or is not the one that was meant. See docs/self-checks.md."""

    steps: int = Field(10, ge=0)
    """Steps in a row without credit after which the console and events.jsonl say so, with the likely cause; again when
    they have doubled. Twice as many are what a warm start's loss is judged by; so many whose loss is next to nothing,
    within ten times as many, are said too. 0: nothing is watched."""
    then: Annotated[Literal["warn", "stop"], ActsWhen("steps")] = "warn"
    """stop: where nothing is learnt the run also ends, saved, with exit code 1; `whet resume` goes on. A
    run of which every reply is right is told so, and goes on."""
    flat_share: Annotated[float, ActsWhen("steps")] = Field(0.8, gt=0, le=1)
    """Of a step's groups: where more teach nothing for `steps` in a row, the console says so. 1: never."""
    kl_warn: float | None = Field(0.1, gt=0)
    """Nats a token from sampler to trainer, before a step's first update, above which the console says so; five times
    as many where older weights sampled the rows. None: never."""
    kl_stop: float | None = Field(1.0, gt=0)
    """As kl_warn, on rows of the same weights alone; above it the run ends, saved, with exit code 1. None: never."""
    same_start: Literal["stop", "warn"] = "stop"
    """What is done where an environment begins one item under one seed in two ways, or where members of a group got
    other prompts: their rewards cannot be compared, and no seed repeats the run."""

    @model_validator(mode="after")
    def _warns_first(self) -> Self:
        if self.kl_warn is not None and self.kl_stop is not None and self.kl_stop < self.kl_warn:
            raise ValueError(
                f"kl_stop = {self.kl_stop:g} is below kl_warn = {self.kl_warn:g}, so the run would end before it is "
                "warned of anything: raise kl_stop, or lower kl_warn"
            )
        return self


class ColumnNames(Config):
    """Your own names of the columns, where they are no layout's that is known. Dots lead inside: extra_info.question,
    messages.0.content. A name with braces is a template of several columns: "{context}\\n\\n{question}"; {{ and }} in
    it are braces. A column that has just that name goes before a path or a template."""

    prompt: ColumnName | None = None
    """The question. None: question, problem or prompt."""
    answer: ColumnName | None = None
    """The reference answer; of text with ####, what follows it. None: answer, or the box of a solution."""
    solution: ColumnName | None = None
    """Worked solutions, which a warm start imitates. None: solution, where there is one."""

    def given(self) -> dict[str, str]:
        """Those that have a name of yours."""
        names = {"prompt": self.prompt, "answer": self.answer, "solution": self.solution}
        return {which: name for which, name in names.items() if name is not None}


class SplitNames(Config):
    """What the splits of a hub's set are called."""

    train: str | None = None
    """None: train."""
    validation: str | None = None
    """None: validation, where the set has one."""
    test: str | None = None
    """None: test, where the set has one."""


_LACKS_FILE = AnyOf(*(ActsUnless(f"{split}_path") for split in SPLITS))
"""Of a set of questions: some split has no file of its own."""


class FileData(Config):
    """Questions and answers from files, or from a set of the Hugging Face hub (`whet.tasks.sources`)."""

    kind: Literal["file"] = "file"
    path: Annotated[InputFile | None, _LACKS_FILE] = None
    """JSON lines, a JSON list or Parquet, for all splits that have no file of their own: they share it by a hash of the
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
    """Of the hub's set: a commit, a branch or a tag. A run keeps the commit that it stands for, and None takes the
    newest."""
    subset: Annotated[Annotated[str, Field(min_length=1)] | None, ActsWhen("hub")] = None
    """Of the hub's set, where it has several: main of openai/gsm8k."""
    splits: Annotated[
        SplitNames, ActsWhen("hub"), *(Inside(split, ActsUnless(f"{split}_path")) for split in SPLITS)
    ] = SplitNames()
    columns: ColumnNames = ColumnNames()
    grader: Annotated[str, Field(min_length=1), NameOf("grader")] = "math_verify"
    """How replies are graded: math_verify, chains, published:gsm8k (or svamp, math, aqua, mathqa, theoremqa: the rules
    of the authors' code, to compare with its numbers), or a grader of yours, by the name that a plug-in gave it."""
    timeout_s: float = Field(5.0, gt=0)
    """Seconds that comparing an answer may take. Past it the answer is wrong, and counted as having exhausted its
    grading; with a grader of yours it has no score, and is left out."""
    # With a file of the training questions, and one of another split, `path` is the whole of the third.
    validation_share: Annotated[
        float,
        ActsUnless("validation_path"),
        ActsUnless("splits.validation"),
        AnyOf(ActsUnless("path"), ActsUnless("train_path"), ActsUnless("test_path")),
    ] = Field(0.1, gt=0, lt=1)
    """Of the questions, by a hash of their text, where validation has no file of its own."""
    test_share: Annotated[
        float,
        ActsUnless("test_path"),
        ActsUnless("splits.test"),
        AnyOf(ActsUnless("path"), ActsUnless("train_path"), ActsUnless("validation_path")),
    ] = Field(0.1, gt=0, lt=1)
    """Likewise. Never used for training or for choosing a checkpoint."""
    limit: int | None = Field(None, ge=1)
    """Take only the first so many questions of each file. None: all."""

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
"""How often an author writes what it misconceives: the lowest and the highest share of the times, one for each fact
between them."""


class ChainData(Config):
    """The tiny world: chains of last-digit arithmetic (`whet.tasks.chains`)."""

    kind: Literal["chains"] = "chains"
    min_steps: int = Field(3, ge=1)
    """Operations in the shortest problems."""
    max_steps: int = Field(6, ge=1, le=12)
    """Operations in the longest. The shipped model was raised on 3 to 6; more are harder."""
    num_train: int = Field(20000, ge=1)
    """Training problems; one step takes the next few."""
    num_validation: int = Field(256, ge=1)
    """Problems on which checkpoints are chosen."""
    num_test: int = Field(1000, ge=1)
    """Problems of the final table."""
    misconceptions: Misconceptions | None = None
    """How often the textbook's author writes what it misconceives, in the answers and refinements that a warm start
    imitates: the lowest and the highest share of the times, one for each fact between them. [0.9, 0.98]: the stubborn
    world, where sampling again seldom finds the right answer. null: [0.35, 0.75], as the shipped model was raised."""


class BasicsMix(Config):
    """How often each kind of problem comes, by weight. 0: never."""

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
    """Questions made by one generator of reasoning-gym, graded by its own scorer (`whet.tasks.gym`)."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str = "chain_sum"
    """The generator's name in reasoning-gym. It has about a hundred, each documented in its repository."""
    params: dict[str, Any] = Field({})
    """The generator's settings, such as {min_terms: 2, max_terms: 4}. Those not given keep the generator's default."""
    seed: int = Field(0, ge=0)
    """Of the questions, not of runs. Other seeds give other questions; a question is in the same split with all."""
    num_train: int = Field(4000, ge=1)
    """Training questions. A new question falls to the splits as 8 : 1 : 1, and they are made until every split has its
    number: test questions cost ten times the time of one."""
    num_validation: int = Field(256, ge=1)
    """Questions on which checkpoints are chosen."""
    num_test: int = Field(500, ge=1)
    """Questions of the final table."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds that scoring an answer may take. Past it the answer is wrong, and counted as having exhausted its
    grading."""
