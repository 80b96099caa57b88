from collections.abc import Sequence

from amadou import Job


def main(job: Job, argv: Sequence[str] | None = None) -> None:
    """Run a job from the command line, then exit: what a job file calls when it is a program of its own.

    ::

        if __name__ == "__main__":
            main(job)

    It takes the options of `amadou run`: see `python views.py --help`. `spark-submit views.py` runs it on a cluster.

    :param job: the job
    :param argv: the arguments; the program's own without them
    """
    from amadou_runtime.command.run_command import run_program  # typer takes its time to import

    run_program(job, argv)
