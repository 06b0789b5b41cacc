"""What judges the pipeline and shows the verdict: readers, the auditor, tables and plots."""

from labs.evidence.audit import Audit, Result, audit
from labs.evidence.batch_table import batch_table
from labs.evidence.checkpoint import read_checkpoint
from labs.evidence.checkpoint_plot import plot_checkpoint
from labs.evidence.expected import Expected, count_by_window
from labs.evidence.plots import plot_audit, plot_count_report, plot_requests_per_window, plot_top_ips
from labs.evidence.reader import read_results
from labs.evidence.stage_plots import plot_stage_fault_heatmap, plot_staircase

__all__ = [
    "Audit",
    "Expected",
    "Result",
    "audit",
    "batch_table",
    "count_by_window",
    "plot_audit",
    "plot_checkpoint",
    "plot_count_report",
    "plot_requests_per_window",
    "plot_stage_fault_heatmap",
    "plot_staircase",
    "plot_top_ips",
    "read_checkpoint",
    "read_results",
]
