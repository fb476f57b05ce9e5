"""The eleven Gymnasium MuJoCo-v5 tasks, as declarations.

Loaded by the entry points of group ``drivetrain.tasks``, by the command line too: nothing
here, nor in what it imports, needs torch or a simulator.
"""

from __future__ import annotations

from types import MappingProxyType

from drivetrain_api.tasks import TaskSpec
from drivetrain_api.training import Simulator
from drivetrain_trainer.tasks import parameters
from drivetrain_trainer.tasks.presets import SIMULATOR_PRESETS, sac_preset

_EVERY = frozenset(Simulator)
_NO_PGS = MappingProxyType(
    {Simulator.MJWARP: "its model asks for the PGS solver, which mjwarp does not have"}
)
_LOCOMOTION_EVALUATOR = {"interval": 50_000, "episodes": 5}

ant = TaskSpec(
    name="ant",
    factory="drivetrain_trainer.tasks.ant:make",
    observation_dim=105,
    action_dim=8,
    episode_length=1000,
    simulators=_EVERY,
    description="Ant-v5: a four-legged body runs along x.",
    parameters=parameters.AntParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=1_000_000,
        replay_rows=300_000,
        learning_starts=1250,
        evaluator=_LOCOMOTION_EVALUATOR,
    ),
)

half_cheetah = TaskSpec(
    name="half_cheetah",
    factory="drivetrain_trainer.tasks.half_cheetah:make",
    observation_dim=17,
    action_dim=6,
    episode_length=1000,
    simulators=_EVERY,
    description="HalfCheetah-v5: a planar two-legged body runs along x.",
    parameters=parameters.HalfCheetahParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(total_env_steps=1_000_000, evaluator=_LOCOMOTION_EVALUATOR),
)

hopper = TaskSpec(
    name="hopper",
    factory="drivetrain_trainer.tasks.hopper:make",
    observation_dim=11,
    action_dim=3,
    episode_length=1000,
    simulators=_EVERY,
    description="Hopper-v5: a planar one-legged body hops along x without falling.",
    parameters=parameters.HopperParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(total_env_steps=1_000_000, evaluator=_LOCOMOTION_EVALUATOR),
)

humanoid = TaskSpec(
    name="humanoid",
    factory="drivetrain_trainer.tasks.humanoid:make",
    observation_dim=348,
    action_dim=17,
    episode_length=1000,
    unsupported=_NO_PGS,
    description="Humanoid-v5: a body of 17 joints walks along x without falling.",
    parameters=parameters.HumanoidParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=2_000_000,
        replay_rows=100_000,
        learning_starts=1250,
        observation_normalization=True,  # inertias and contact forces reach the thousands
        evaluator=_LOCOMOTION_EVALUATOR,
    ),
)

humanoid_standup = TaskSpec(
    name="humanoid_standup",
    factory="drivetrain_trainer.tasks.humanoid_standup:make",
    observation_dim=348,
    action_dim=17,
    episode_length=1000,
    unsupported=_NO_PGS,
    description="HumanoidStandup-v5: a lying body of 17 joints stands up.",
    parameters=parameters.HumanoidStandupParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=2_000_000,
        replay_rows=100_000,
        learning_starts=1250,
        observation_normalization=True,
        evaluator=_LOCOMOTION_EVALUATOR,
    ),
)

inverted_double_pendulum = TaskSpec(
    name="inverted_double_pendulum",
    factory="drivetrain_trainer.tasks.inverted_double_pendulum:make",
    observation_dim=9,
    action_dim=1,
    episode_length=1000,
    simulators=_EVERY,
    description="InvertedDoublePendulum-v5: a cart keeps two linked poles upright.",
    parameters=parameters.InvertedDoublePendulumParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=20_000,
        replay_rows=100_000,
        learning_starts=25,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        alpha_learning_rate=1e-3,
        evaluator={"interval": 1000, "episodes": 10, "target": 9100.0},
    ),
)

inverted_pendulum = TaskSpec(
    name="inverted_pendulum",
    factory="drivetrain_trainer.tasks.inverted_pendulum:make",
    observation_dim=4,
    action_dim=1,
    episode_length=1000,
    simulators=_EVERY,
    description="InvertedPendulum-v5: a cart keeps a pole upright.",
    parameters=parameters.InvertedPendulumParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=20_000,
        replay_rows=100_000,
        learning_starts=25,
        actor_learning_rate=1e-3,
        critic_learning_rate=1e-3,
        alpha_learning_rate=1e-3,
        evaluator={"interval": 1000, "episodes": 10, "target": 950.0},
    ),
)

pusher = TaskSpec(
    name="pusher",
    factory="drivetrain_trainer.tasks.pusher:make",
    observation_dim=23,
    action_dim=7,
    episode_length=100,
    simulators=_EVERY,
    description="Pusher-v5: an arm of seven joints pushes a cylinder to a goal.",
    parameters=parameters.PusherParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=500_000,
        replay_rows=500_000,
        evaluator={"interval": 25_000, "episodes": 20},
    ),
)

reacher = TaskSpec(
    name="reacher",
    factory="drivetrain_trainer.tasks.reacher:make",
    observation_dim=10,
    action_dim=2,
    episode_length=50,
    simulators=_EVERY,
    description="Reacher-v5: a planar arm of two joints touches a target.",
    parameters=parameters.ReacherParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=100_000,
        replay_rows=100_000,
        evaluator={"interval": 5000, "episodes": 20},
    ),
)

swimmer = TaskSpec(
    name="swimmer",
    factory="drivetrain_trainer.tasks.swimmer:make",
    observation_dim=8,
    action_dim=2,
    episode_length=1000,
    simulators=_EVERY,
    description="Swimmer-v5: three links swim along x in a viscous plane.",
    parameters=parameters.SwimmerParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(
        total_env_steps=1_000_000,
        gamma=0.9999,  # a stroke pays off late: at 0.99 it is never learnt
        evaluator=_LOCOMOTION_EVALUATOR,
    ),
)

walker2d = TaskSpec(
    name="walker2d",
    factory="drivetrain_trainer.tasks.walker2d:make",
    observation_dim=17,
    action_dim=6,
    episode_length=1000,
    simulators=_EVERY,
    description="Walker2d-v5: a planar two-legged body walks along x without falling.",
    parameters=parameters.Walker2dParameters,
    simulator_presets=SIMULATOR_PRESETS,
    presets=sac_preset(total_env_steps=1_000_000, evaluator=_LOCOMOTION_EVALUATOR),
)

TASKS: tuple[TaskSpec, ...] = (
    ant,
    half_cheetah,
    hopper,
    humanoid,
    humanoid_standup,
    inverted_double_pendulum,
    inverted_pendulum,
    pusher,
    reacher,
    swimmer,
    walker2d,
)
