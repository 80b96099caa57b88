from collections.abc import Sequence

from amadou import Job


def main(job: Job, argv: Sequence[str] | None = None) -> None:
    """Run a job from the command line, then exit: for job files that are programs.

    ::

        if __name__ == "__main__":
            main(job)

    The program takes the options of `amadou run`: see `python views.py --help`. `spark-submit views.py` runs it on a
    cluster.

    :param job: the job
    :param argv: the arguments; without them the program's own
    """
    from amadou_runtime.command.run_command import run_program  # importing typer takes long

    run_program(job, argv)
