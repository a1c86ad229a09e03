"""The pure parts of `training/`: pictures, clips, prompts, losses, the rollout, checkpoints."""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("transformers", reason="training needs transformers")

from transformers.models.sam2_video.modeling_sam2_video import Sam2VideoInferenceSession  # noqa: E402

# training/ is not installed. At the end, so that the package under test stays the installed one.
sys.path.append(str(Path(__file__).parent.parent))

from training import checkpoint, clips, curve, formats, losses, network, schedule, sprites, train  # noqa: E402
from training.actors import Actor, Looks, translation  # noqa: E402
from training.actors import Path as ActorPath  # noqa: E402
from training.clips import NOTHING, Camera, make_clip  # noqa: E402
from training.dataset import augment, collate, sample  # noqa: E402
from training.initialise import prepare  # noqa: E402
from training.looks import harmonise, make_looks  # noqa: E402
from training.prompts import prompt_sheet  # noqa: E402
from training.rollout import Options, Rollout, error_clicks, mask_iou  # noqa: E402

pytestmark = pytest.mark.torch

SIZE = 128


@pytest.fixture(scope="module")
def library() -> sprites.Library:
    rng = np.random.default_rng(0)
    shapes = []
    for colour in ((200, 40, 40), (30, 180, 60), (60, 60, 200)):
        picture = np.zeros((90, 70, 4), np.uint8)
        picture[..., :3] = colour
        cv2.ellipse(picture, (35, 45), (30, 40), 0, 0, 360, (*colour, 255), -1)
        shapes.append(picture)
    photos = [cv2.resize(rng.integers(0, 255, (9, 16, 3), dtype=np.uint8), (640, 360)) for _ in range(2)]
    return sprites.Library(shapes, shapes[:1], shapes[1:], photos)


@pytest.fixture(scope="module")
def model() -> network.Sam2VideoModel:
    torch.manual_seed(0)
    return prepare(network.Sam2VideoModel(network.nano_config(SIZE))).eval()


def batch_of(library: sprites.Library, length: int, objects: int, seed: int = 0):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    return collate([sample(make_clip(library, length, SIZE, rng), objects, rng, exact=True)])


# --- pictures


def test_a_cut_out_is_cropped_to_its_largest_shape_and_scaled() -> None:
    picture = np.zeros((200, 300, 4), np.uint8)
    cv2.circle(picture, (150, 100), 60, (10, 20, 30, 255), -1)
    picture[5:10, 5:10] = 255  # a crumb, which is dropped
    cut = sprites.cut_out(picture, side=80)
    assert cut is not None
    assert max(cut.shape[:2]) == 80
    count, _ = cv2.connectedComponents((cut[..., 3] > 128).astype(np.uint8))
    assert count == 2


@pytest.mark.parametrize("width", [1, 4])
def test_thin_and_tiny_pictures_are_no_sprites(width: int) -> None:
    picture = np.zeros((400, 300, 4), np.uint8)
    picture[20:380, 100 : 100 + width] = 255
    assert sprites.cut_out(picture) is None


def test_a_doom_picture_is_decoded_column_by_column() -> None:
    palette = np.arange(768, dtype=np.uint8).reshape(256, 3)
    column = bytes([1, 2, 0, 7, 9, 0, 255])  # two pixels from row 1: colours 7 and 9
    data = b"??" + struct.pack("<HHhhII", 2, 4, 0, 0, 16, 16) + column
    picture = formats.doom_picture(data, 2, palette)
    assert picture.shape == (4, 2, 4)
    np.testing.assert_array_equal(picture[1:3, 0, :3], palette[[7, 9]])
    np.testing.assert_array_equal(picture[:, 1, 3], [0, 255, 255, 0])


def test_the_flat_file_gives_back_every_picture(tmp_path: Path) -> None:
    pictures = [np.full((3 + index, 4, 4), index, np.uint8) for index in range(3)]
    sprites._write_flat(tmp_path / "all", pictures)
    for wrote, read in zip(pictures, sprites._read_flat(tmp_path / "all"), strict=True):
        np.testing.assert_array_equal(wrote, read)


# --- clips


def test_an_actor_that_goes_away_leaves_the_frame_and_returns() -> None:
    path = ActorPath(start=(60.0, 60.0), away=(2.0, 4.0, 500.0, 0.0))
    x = [path.at(time, (10, 10))[0, 2] for time in (0.0, 3.0, 10.0)]
    assert x == pytest.approx([55.0, 555.0, 55.0])


def test_a_still_camera_changes_nothing() -> None:
    view = Camera((0.0, 0.0), 0.0, 0.0, 0.0, SIZE).at(3.0, np.zeros(2))
    np.testing.assert_allclose(view, translation(0, 0), atol=1e-12)


def test_the_same_seed_gives_the_same_clip(library: sprites.Library) -> None:
    one, two = (make_clip(library, 3, SIZE, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one.frames, two.frames)
    np.testing.assert_array_equal(one.labels, two.labels)


def test_targets_are_there_on_the_first_frame_and_some_are_gone_later(library: sprites.Library) -> None:
    rng = np.random.default_rng(1)
    gone = 0
    for _ in range(40):
        clip = make_clip(library, 6, 64, rng)
        assert clip.frames.shape == (6, 64, 64, 3)
        assert all((clip.labels[0] == label).any() for label in clip.candidates)
        gone += not (clip.labels[1:] == clip.candidates[0]).any((1, 2)).all()
    assert 6 <= gone <= 25  # about 30 % of the clips


def test_targets_leave_as_often_as_asked(library: sprites.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "CROSSED", 0.0)

    def gone(leaving: float) -> int:
        made = (make_clip(library, 10, 64, np.random.default_rng(seed), leaving) for seed in range(20))
        return sum(not (clip.labels == clip.candidates[0]).any((1, 2)).all() for clip in made)

    assert gone(0.0) + 8 <= gone(1.0)


def test_usual_targets_show_enough_of_themselves(library: sprites.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "HARD_SHARE", 0.0)
    for seed in range(30):
        clip = make_clip(library, 1, 64, np.random.default_rng(seed))
        assert clip.candidates[0] in (0, clips.REGION)
        for label in clip.candidates:
            assert (clip.labels[0] == label).mean() > 0.008


def test_mostly_nothing_but_the_last_of_the_cast_hides_the_main_target() -> None:
    rng = np.random.default_rng(0)
    orders = [clips._painting_order(4, rng) for _ in range(400)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    hidden_by_many = sum(order.index(0) < 2 for order in orders)
    assert 0.2 < hidden_by_many / len(orders) < 0.4


def test_augmentation_moves_frames_and_labels_together(library: sprites.Library) -> None:
    clip = make_clip(library, 2, 64, np.random.default_rng(2))
    marked = clip.frames.copy()
    marked[clip.labels == clip.candidates[0]] = (255, 0, 0)
    clip = type(clip)(marked, clip.labels, clip.candidates)
    for seed in range(8):
        moved = augment(clip, np.random.default_rng(seed))
        colours = moved.frames[moved.labels == clip.candidates[0]]
        assert (colours.max(1) == 255).all() and (colours.sum(1) == 255).all()


def test_harmonised_looks_move_towards_the_scene(library: sprites.Library) -> None:
    looks = Looks(library.sprites[0])
    scene = np.full((64, 64, 3), 100, np.uint8)
    near = harmonise(looks, scene, 1.0).body
    assert np.abs(near[45, 35, :3].astype(int) - 100).max() <= 2
    assert harmonise(looks, scene, 0.0) is looks


def test_looks_keep_their_size_at_all_times(library: sprites.Library) -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        actor = Actor(make_looks(library, rng), ActorPath((0.0, 0.0)))
        assert actor.looks.at(0.0).shape == actor.looks.at(2.5).shape


# --- prompts


@pytest.mark.parametrize("exact", [False, True])
def test_prompts_fit_the_mask(exact: bool) -> None:
    mask = np.zeros((SIZE, SIZE), bool)
    mask[20:60, 30:100] = True
    points, labels = prompt_sheet(mask, np.random.default_rng(0), exact)
    for (x, y), label in zip(points[:3].astype(int), labels[:3], strict=True):
        assert mask[y, x] == (label == 1)
    assert labels.tolist()[3:] == [2, 3]
    assert np.abs(points[3:].ravel() - [30, 20, 99, 59]).max() <= (0 if exact else 6)


def test_error_clicks_fall_into_the_larger_error() -> None:
    truth = torch.zeros(2, 16, 16)
    truth[:, 4:12, 4:12] = 1
    logits = torch.full((2, 16, 16), -5.0)
    logits[1, :, 4:12] = 5.0  # covers too much
    points, labels = error_clicks(logits, truth, 64, np.random.default_rng(0))
    assert labels[:, 0].tolist() == [1, 0]
    x, y = (points[0, 0] / 4).long().tolist()
    assert truth[0, y, x] == 1
    x, y = (points[1, 0] / 4).long().tolist()
    assert truth[1, y, x] == 0 and logits[1, y, x] > 0


# --- losses


def test_a_perfect_mask_costs_nothing_and_a_wrong_one_much() -> None:
    truth = torch.zeros(1, 1, 16, 16)
    truth[..., 4:9, 4:9] = 1
    right, wrong = (losses.mask_loss(sign * (truth * 40 - 20), truth, losses.Weights()) for sign in (1, -1))
    assert float(right) < 1e-3 < 10 < float(wrong)


def test_rare_absent_frames_weigh_more_than_their_number() -> None:
    visible = torch.tensor([True] * 15 + [False])
    scores = torch.full((16,), 3.0)
    balanced = losses.score_loss(scores, visible)
    plain = torch.nn.functional.binary_cross_entropy_with_logits(scores, visible.float())
    assert float(balanced) > 1.5 * float(plain)


def test_mask_outside_of_the_box_costs() -> None:
    box = torch.tensor([[[16.0, 16.0], [48.0, 48.0]]])
    inside, outside = torch.full((1, 16, 16), -20.0), torch.full((1, 16, 16), -20.0)
    inside[:, 5:11, 5:11] = 5.0
    outside[:, 13:, 13:] = 5.0
    assert float(losses.outside_box_loss(inside, box, 64)) < 1e-4
    assert float(losses.outside_box_loss(outside, box, 64)) > 0.1


def test_iou_of_two_empty_masks_is_one() -> None:
    assert float(mask_iou(torch.full((1, 4, 4), -1.0), torch.zeros(1, 4, 4))) == 1.0


def test_a_training_step_reaches_every_part_that_inference_uses(
    library: sprites.Library, model: network.Sam2VideoModel
) -> None:
    batch = batch_of(library, 4, 2)
    model.zero_grad()
    for options in (Options("box", burn_in=1, correct_at=2), Options("mask", prompt_age=9), Options("click")):
        predictions = Rollout(model, batch, options, np.random.default_rng(0)).run()
        assert len(predictions) == 4 + (options.correct_at is not None)
        losses.rollout_loss(predictions, batch, options.kind, losses.Weights()).backward()
    unused = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert unused <= {"no_memory_positional_encoding", "prompt_encoder.shared_embedding.positional_embedding"}


@pytest.mark.parametrize("kind", ["mask", "click", "box"])
def test_the_rollout_is_what_transformers_does(
    library: sprites.Library, model: network.Sam2VideoModel, kind: str
) -> None:
    batch = batch_of(library, 4, 1)
    with torch.no_grad():
        ours = Rollout(model, batch, Options(kind, train=False), np.random.default_rng(0)).run()
        theirs = _reference(model, batch, kind)
    for prediction, reference in zip(ours, theirs, strict=True):
        if prediction.given:
            continue
        mask = prediction.masks[0, prediction.chosen[0]]
        mask = mask if prediction.score[0] > 0 else torch.full_like(mask, -1024.0)
        # transformers keeps memories as bfloat16
        torch.testing.assert_close(mask, reference, atol=0.05, rtol=0.02)


def _reference(model: network.Sam2VideoModel, batch, kind: str) -> list:  # type: ignore[no-untyped-def,type-arg]
    session = Sam2VideoInferenceSession(
        video_height=SIZE,
        video_width=SIZE,
        inference_device="cpu",
        inference_state_device="cpu",
        video_storage_device="cpu",
        dtype=torch.float32,
    )
    object_idx = session.obj_id_to_idx(1)
    if kind == "mask":
        session.add_mask_inputs(object_idx, 0, batch.first_masks.float())
    else:
        rows = {"click": slice(0, 1), "box": slice(3, 5)}[kind]
        prompt = {"point_coords": batch.points[:, :, rows], "point_labels": batch.labels[:, :, rows].int()}
        session.add_point_inputs(object_idx, 0, prompt)
    session.obj_with_new_inputs = [1]
    frames = network.normalise(batch.frames)
    return [model(inference_session=session, frame=frame[None]).pred_masks[0, 0] for frame in frames]


# --- the run


def test_stages_follow_one_another_and_the_rate_ends_low() -> None:
    for stages in (schedule.FROM_SCRATCH, schedule.FROM_WEIGHTS):
        assert stages[0].begin == 0
        assert [stage.length for stage in stages] == sorted(stage.length for stage in stages)
        assert schedule.stage_at(stages, 0.99) == stages[-1]
    assert schedule.learning_rate(1.0, 0.5, 10_000) == 1.0
    assert schedule.learning_rate(1.0, 1.0, 10_000) == pytest.approx(0.02)


def test_every_drawn_option_can_be_run() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        length = int(rng.integers(1, 9))
        options = schedule.draw_options(length, 6, rng)
        assert options.correct_at is None or options.correct_at < length
        assert not (options.kind == "mask" and options.correct_at == 0)


def test_every_weight_has_one_optimiser_and_muon_takes_matrices_alone(model: network.Sam2VideoModel) -> None:
    adam, muon = train.make_optimisers(model, 1e-3)
    parts = [[weight for group in each.param_groups for weight in group["params"]] for each in (adam, muon)]
    ids = [id(weight) for part in parts for weight in part]
    assert len(ids) == len(set(ids))
    assert set(ids) == {id(weight) for weight in model.parameters()}
    assert all(weight.dim() == 2 for weight in parts[1])
    assert sum(weight.numel() for weight in parts[1]) > 0.7 * sum(weight.numel() for weight in model.parameters())


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    def build() -> tuple[torch.nn.Linear, checkpoint.Ema, list[torch.optim.Optimizer]]:
        layer = torch.nn.Linear(3, 2)
        optimisers = [torch.optim.Muon([layer.weight]), torch.optim.AdamW([layer.bias])]
        return layer, checkpoint.Ema(layer, 0.9), optimisers

    layer, ema, optimisers = build()
    layer(torch.ones(1, 3)).sum().backward()
    for optimiser in optimisers:
        optimiser.step()
    ema.update(layer)
    progress = checkpoint.Progress(step=7, seconds=3.5, starts=2, best=0.4)
    checkpoint.save(tmp_path / "last.pt", layer, ema, optimisers, progress, {})
    drawn = torch.rand(3)
    other, other_ema, others = build()
    assert checkpoint.restore(tmp_path / "last.pt", other, other_ema, others) == progress
    assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(other.weight, layer.weight)
    assert torch.equal(other_ema.weights["weight"], ema.weights["weight"])
    assert not torch.equal(other_ema.weights["weight"], layer.weight)
    assert others[0].state_dict()["state"][0]["momentum_buffer"].abs().sum() > 0
    assert others[1].state_dict()["state"][0]["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_a_checkpoint_gives_the_network_with_its_averaged_weights(
    model: network.Sam2VideoModel, tmp_path: Path
) -> None:
    ema = checkpoint.Ema(model, 0.9)
    ema.weights["no_memory_embedding"] += 1
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    checkpoint.save(tmp_path / "best.pt", model, ema, [], checkpoint.Progress(), config)
    averaged = checkpoint.load_averaged(tmp_path / "best.pt")
    torch.testing.assert_close(averaged.no_memory_embedding, model.no_memory_embedding + 1)
    assert averaged.config.image_size == SIZE


@pytest.mark.parametrize("asked", [True, False])
def test_workers_that_a_signal_ended_stop_a_run_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    trainer = train.Trainer.__new__(train.Trainer)
    trainer.progress, trainer.team = checkpoint.Progress(), train.Team()
    trainer.asked = trainer.stopped = False
    saved: list[str] = []

    def evaluate() -> None:
        trainer.asked = asked
        raise RuntimeError("DataLoader worker is killed by signal")

    monkeypatch.setattr(train.signal, "signal", lambda *_: None)
    for name, does in {"_stream": lambda *_, **__: iter(()), "_evaluate": evaluate, "_save": saved.append}.items():
        monkeypatch.setattr(trainer, name, does)
    monkeypatch.setattr(trainer, "_log", lambda _: None)
    if asked:
        trainer.run()
        assert saved == [checkpoint.LAST]
    else:
        with pytest.raises(RuntimeError, match="killed by signal"):
            trainer.run()
        assert saved == []


def test_the_curve_is_drawn_also_without_a_loss(tmp_path: Path) -> None:
    score = {"first": 0.5, "later": 0.4, "absent": math.nan}
    line = f'{{"event": "eval", "minutes": 1.0, "mask": {score}, "click": {score}, "box": {score}}}'
    (tmp_path / "log.jsonl").write_text(line.replace("'", '"').replace("nan", "NaN") + "\n")
    curve.draw_curve(tmp_path / "log.jsonl", tmp_path / "curve.png")
    picture = cv2.imread(str(tmp_path / "curve.png"))
    assert picture is not None and picture.std() > 0


def test_nothing_is_the_label_of_the_ground(library: sprites.Library) -> None:
    clip = make_clip(library, 1, SIZE, np.random.default_rng(4))
    assert NOTHING in clip.labels
