"""The rules: R1 to R34, and F1 to F3 about the files themselves. Data only.

``vllm`` is what vLLM 0.32 does: most lines are what it did in tests/e2e/test_draft_rules.py, the others are what their
source says. Numbers with # are issues and pull requests of the project that is named, of vLLM where none is.
"""

from __future__ import annotations

from dataclasses import dataclass

ERROR = "error"  # vLLM refuses the draft, or accepts next to nothing of it
WARNING = "warning"  # it may be meant; where it is not, acceptance is lost without a word
NOTE = "note"  # worth knowing, changes nothing
LEVELS = (ERROR, WARNING, NOTE)

FAILS = "error"  # vLLM ends with an error
SILENT = "silent"  # vLLM serves it without a word
WORKS = "none"  # vLLM serves it as it should


@dataclass(frozen=True)
class Rule:
    """One rule.

    :param level: of its findings, as one of ``LEVELS``.
    :param effect: ``FAILS``, ``SILENT`` or ``WORKS``.
    :param vllm: what vLLM does, in words.
    :param fixable: a corrected copy can be written without a guess.
    :param needs_verifier: from the draft alone it is judged in part, or not at all.
    """

    id: str
    title: str
    level: str
    effect: str
    vllm: str
    remedy: str
    source: str
    fixable: bool = False
    needs_verifier: bool = False


_MATRIX = (
    Rule("F1", "config.json cannot be read", ERROR, FAILS, "ends: it finds no config",
         "Export the draft again.", "transformers, AutoConfig"),
    Rule("F2", "There are no weights", ERROR, FAILS, "ends: it finds no weights",
         "Export the draft again.", "vLLM default_loader.py"),
    Rule("F3", "A weights file is cut or damaged", ERROR, FAILS, "ends with a safetensors error",
         "Copy or export it again.", "safetensors README, Format"),
    Rule("R1", "d2t is missing though the vocabulary is reduced", ERROR, SILENT,
         "maps every draft token to itself: wrong tokens",
         "Export again; the trainer's checkpoint holds d2t.", "llama_eagle3.py load_weights"),
    Rule("R2", "fc.weight is missing", ERROR, SILENT, "computes with whatever was in memory instead",
         "Export again from a whole checkpoint.", "llama_eagle3.py load_weights gives None: no check of completeness"),
    Rule("R3", "lm_head.weight is missing though the vocabulary is reduced", ERROR, SILENT,
         "takes the verifier's lm_head, whose rows are other tokens",
         "Export again from a whole checkpoint.", "llm_base_proposer.py _maybe_share_lm_head"),
    Rule("R4", "A projection of the layer is missing", ERROR, SILENT, "computes with whatever was in memory instead",
         "Export again from a whole checkpoint.", "llama_eagle3.py load_weights gives None: no check of completeness"),
    Rule("R5", "A tensor holds NaN, infinity or nothing but zeros", ERROR, SILENT, "serves it",
         "Export another epoch; a training that diverged must be repeated.", "no check anywhere in vLLM"),
    Rule("R6", "A norm is missing", WARNING, SILENT, "takes a norm of ones",
         "Export again from a whole checkpoint.", "llama_eagle3.py load_weights gives None: no check of completeness"),
    Rule("R7", "input_norm.weight is there, but norm_before_fc is not set", WARNING, SILENT,
         "drops the tensor, so fc reads states that were never normed",
         "Set norm_before_fc to true.", "llama_eagle3.py load_weights; #36545, #38111", fixable=True),
    Rule("R8", "A norm setting does not reach vLLM", WARNING, SILENT,
         "computes another layer than the one that was trained",
         "Set norm_before_residual, norm_output and fc_norm at the top level as they were trained.",
         "#46488; speculators #610, #670, #692"),
    Rule("R9", "The layer ids are absent, or not those of the verifier's states that were trained on", WARNING, SILENT,
         "feeds states of other layers; ids are sorted and doubles left out",
         "Name the layers as vLLM counts; --layer-ids sglang --fix translates ids that count from the layer itself.",
         "#43671, #50170; TorchSpec #87, #89; interfaces.py EagleModelMixin",
         needs_verifier=True),
    Rule("R10", "The layer ids stand only in eagle_config", WARNING, SILENT,
         "its V2 runner does not read them there and takes layers 2, n/2 and n-3; its V1 runner reads them",
         "Write them at the top level too.", "eagle3_utils.py get_eagle3_aux_layers_from_config", fixable=True),
    Rule("R11", "fc does not fit the number of layer ids in eagle_config", ERROR, FAILS, "ends: sizes of fc differ",
         "Name as many layers as fc reads states.", "llama_eagle3.py LlamaModel"),
    Rule("R12", "Another number of layers than three is named at the top level only", ERROR, FAILS,
         "sizes fc for three states and ends",
         "Write the ids at both places and num_aux_hidden_states.", "llama_eagle3.py LlamaModel", fixable=True),
    Rule("R13", "draft_vocab_size is not the number of lm_head's rows", ERROR, FAILS,
         "ends: AssertionError while it loads the weight",
         "Set draft_vocab_size to the rows of lm_head.weight.", "vocab_parallel_embedding.py weight_loader"),
    Rule("R14", "d2t is there, but draft_vocab_size says that the vocabulary is whole", ERROR, FAILS,
         "ends: no parameter draft_id_to_target_id",
         "Set draft_vocab_size to the length of d2t.", "llama_eagle3.py Eagle3LlamaForCausalLM", fixable=True),
    Rule("R15", "d2t holds token ids instead of offsets", ERROR, FAILS,
         "adds them to the draft's ids: an index out of range, or wrong tokens",
         "Write d2t[i] = token - i.", "llama_eagle3.py compute_logits"),
    Rule("R16", "d2t and t2d do not belong together", ERROR, SILENT, "reads d2t alone: wrong tokens",
         "Export again; both must be of the same training.", "llama_eagle3.py skips t2d"),
    Rule("R17", "vocab_size is not the verifier's", ERROR, FAILS, "ends: sizes of the vocabularies differ",
         "Set vocab_size to the verifier's; a draft of another vocabulary does not fit.",
         "llama_eagle3.py compute_logits; vocab_parallel_embedding.py", needs_verifier=True),
    Rule("R18", "A tensor's shape does not follow from the config", ERROR, FAILS, "ends: sizes differ",
         "Set hidden_size, target_hidden_size and the heads as they were trained.",
         "#18906, #19174; llama_eagle3.py LlamaModel", needs_verifier=True),
    Rule("R19", "use_cache is null", ERROR, FAILS, "ends: StrictDataclassFieldValidationError",
         "Set use_cache to true.", "transformers 5 strict configs; ModelOpt triage guide", fixable=True),
    Rule("R20", "model_type is missing", ERROR, FAILS, "ends: the config's type is unknown",
         "Set model_type (llama).", "transformers AutoConfig; ModelOpt triage guide"),
    Rule("R21", "The architecture is none that vLLM serves as a draft", ERROR, FAILS, "ends: not supported",
         "Set architectures to LlamaForCausalLMEagle3.", "models/registry.py"),
    Rule("R22", "A tensor's name is none of a draft", ERROR, FAILS, "ends: there is no such module or parameter",
         "Export again: names have no prefix model., and nothing else may be in the file.", "AutoWeightsLoader"),
    Rule("R23", "use_aux_hidden_state is false though the draft reads several states", ERROR, FAILS,
         "its V1 runner ends, its V2 runner ignores the flag",
         "Set eagle_config.use_aux_hidden_state to true.", "llm_base_proposer.py; #40656"),
    Rule("R24", "The path holds 'eagle-'", WARNING, FAILS,
         "without a method it takes the draft for EAGLE-1 and ends",
         "Give \"method\": \"eagle3\", or rename the folder.", "config/speculative.py", fixable=True),
    Rule("R25", "The path does not say eagle3", NOTE, FAILS,
         "without a method it takes the draft for a whole model and ends",
         "Give \"method\": \"eagle3\".", "config/speculative.py"),
    Rule("R26", "max_position_embeddings is less than the verifier's", WARNING, SILENT,
         "accepts little behind that position, although it raises the number (#48894)",
         "Set it to the verifier's.", "#48894; config/speculative.py", needs_verifier=True),
    Rule("R27", "The rotary settings are absent or contradict each other", WARNING, SILENT,
         "takes base 10000, or one of the two",
         "Write rope_parameters (and rope_theta, rope_scaling for older engines) as they were trained.",
         "transformers LlamaConfig"),
    Rule("R28", "tie_word_embeddings is true though the vocabulary is reduced", ERROR, SILENT,
         "0.32 ignores it; other engines tie lm_head to an embedding of another size",
         "Set tie_word_embeddings to false.", "transformers PreTrainedModel.tie_weights"),
    Rule("R29", "The config names another type than the weights have", NOTE, WORKS, "converts them",
         "Nothing need be done.", "vLLM default_loader.py"),
    Rule("R30", "The verifier's path is not there", WARNING, FAILS,
         "`vllm serve DRAFT` looks for it, here and then on the hub; with --model it is not read",
         "Name this host's verifier: --verifier DIR --fix.",
         "transformers_utils/config.py maybe_override_with_speculators", fixable=True),
    Rule("R31", "The verifier is not the one that was trained for", WARNING, SILENT, "serves it, with less acceptance",
         "Serve it with the verifier that it was trained for, or train again.", "#35966",
         needs_verifier=True),
    Rule("R32", "The last layer's state is read from a DeepSeek or Kimi verifier", WARNING, SILENT,
         "before #46973 it dropped that state",
         "Use a vLLM of July 2026 or later, or layers before the last.", "#46973", needs_verifier=True),
    Rule("R33", "Kimi-K2.5 with a draft: not every release of vLLM loads it", WARNING, FAILS,
         "0.17 refuses the config, 0.22.0 serves it, 0.22.1 crashes",
         "Use 0.22.0, or a release that you have tried.", "ModelOpt #1066", needs_verifier=True),
    Rule("R34", "A draft in speculators' format is not loaded with tensor parallelism 4", NOTE, FAILS,
         "ends at TP 4 (open)",
         "Export it in the flat format.", "#54526"),
)  # fmt: skip

RULES = {rule.id: rule for rule in _MATRIX}
