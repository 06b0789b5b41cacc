"""The API of the lessons and exercises: everything they import, by the names that they use."""

# ruff: noqa: F401  the names are for the lessons; a test compares them with what the lessons use

from IPython.core.getipython import get_ipython

from labs.desk.cells import show_expected_errors_briefly
from labs.equipment.interrupts import interrupts_wait

with interrupts_wait():  # an interrupt during an import: some packages cannot be imported again afterwards
    from exactly_once_kafka.points import FAULT_POINTS
    from exactly_once_kafka.protocol import is_published
    from exactly_once_kafka.sink import ExactlyOnceKafkaSink
    from labs.desk.bench import Story, open_bench
    from labs.desk.lesson_check import check, my_sink, own_or_reference, reference
    from labs.desk.questions import exit_ticket, predict, review
    from labs.equipment.apart import Apart
    from labs.equipment.doctor import checks
    from labs.equipment.spark import spark_session
    from labs.equipment.topics import create_topic, end_offsets
    from labs.equipment.waiting import eventually
    from labs.evidence.auditor.anomalies import Anomaly
    from labs.evidence.auditor.audit import Result, audit, count_repeats
    from labs.evidence.auditor.expected import count_by_window
    from labs.evidence.checkpoint.checkpoint import batch_table, read_checkpoint
    from labs.evidence.checkpoint.planned_results import planned_results, read_source_records
    from labs.evidence.checkpoint.state_store import counts_in_flight
    from labs.evidence.plots.checkpoint_plots import (
        plot_alignment,
        plot_arrivals,
        plot_batches,
        plot_checkpoint,
        plot_fit,
    )
    from labs.evidence.plots.count_plots import plot_audit, plot_two_ways
    from labs.evidence.plots.stage_plots import (
        plot_by_batch_size,
        plot_engines,
        plot_outages,
        plot_staircase,
        plot_stall,
    )
    from labs.evidence.plots.transaction_plot import plot_transactions
    from labs.evidence.readers.kafka_tools import describe_group, dump_log, dump_transaction_log
    from labs.evidence.readers.other_readers import read_database, read_files
    from labs.evidence.readers.results import as_result, in_batches, read_results, read_visible
    from labs.evidence.readers.transactions import (
        end_table,
        last_stable_offset,
        read_ends,
        read_transactions,
        settle,
        transaction_table,
        wait_until_ended,
    )
    from labs.exercises.checker.batch_judges import counterexample, explore_batch
    from labs.exercises.checker.student_module import publish_in
    from labs.faults.chaos_injectors import KINDS, ChaosPlan
    from labs.faults.fault_points import Fault, FaultPoints, InjectedCrash, TaskFaults
    from labs.faults.proxy import LostAcknowledgement, Request
    from labs.faults.supervisor import Supervisor
    from labs.judge import judge
    from labs.judging.engine_comparison import recorded_engines
    from labs.pipeline.log.access_log import parse_line, read_access_log
    from labs.pipeline.log.generate import classroom, format_line
    from labs.pipeline.log.log_report import LogReport
    from labs.pipeline.log.replay import close_windows, replay
    from labs.pipeline.query.ip_count import accepts, count_ips, parse_records, read_source, start_query
    from labs.pipeline.query.offset_reporter import OffsetReporter
    from labs.pipeline.records import SINK_TOPIC, SOURCE_TOPIC
    from labs.pipeline.sinks.at_least_once import AtLeastOnceKafkaSink
    from labs.pipeline.sinks.database_sink import DatabaseSink
    from labs.pipeline.sinks.file_sink import FileSink
    from labs.pipeline.sinks.real_time_sink import RealTimeKafkaSink, report_each
    from labs.pipeline.two_phase.coordinator import DecisionLog
    from labs.pipeline.two_phase.end_transaction import finish, lingering, transaction_coordinator
    from labs.pipeline.two_phase.prepared import PreparedTransaction, PreparingProducer
    from labs.pipeline.two_phase.without_timeout import UNRELEASED, epoch_without_timeout, init_without_timeout
    from labs.room.script import Do, Until
    from labs.room.widget import room
    from labs.runs.attack.attack import attack
    from labs.runs.attack.language import parse_orders
    from labs.runs.attack.sinks import source_of, wrong_sink
    from labs.runs.chaos import run_chaos
    from labs.runs.chaos_plot import plot_chaos
    from labs.runs.cost import measure_cost
    from labs.runs.own_sink import OwnStage, init_transactions, sink_of
    from labs.runs.staircase import Stage, WithoutMarker, run_stage
    from labs.schedules.barrier import explore_orders
    from labs.schedules.barrier_steps import barrier_steps, draw_barrier_job, draw_barriers
    from labs.schedules.lesson_pictures import draw_batch, draw_commits, draw_coordinator, draw_pipeline, draw_readers
    from labs.schedules.model.checker import explore
    from labs.schedules.model.stages import MODELS
    from labs.schedules.recorder import Recorder
    from labs.schedules.replay.counterexample import replay_on_kafka
    from labs.schedules.replay.replay_bench import replay_bench
    from labs.schedules.schedule import Event
    from labs.schedules.sequence_diagram import draw
    from labs.schedules.timeline.timeline import timeline

show_expected_errors_briefly(get_ipython())
