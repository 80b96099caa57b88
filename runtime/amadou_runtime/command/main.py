from collections.abc import Sequence

from amadou import Job


def main(job: Job, argv: Sequence[str] | None = None) -> None:
    """Run a job from the command line. Use this function in job files that are also programs.

    ::

        if __name__ == "__main__":
            main(job)

    The program has the same options as `amadou run`. For a job file `views.py`, for example, `python views.py --help`
    shows these options, and `spark-submit views.py` runs the job on a cluster.

    :param job: the job
    :param argv: the command-line arguments; by default, the program's own arguments
    :raises SystemExit: the run has failed (status 1), or the arguments are wrong (status 2). After a run that succeeds,
        the function returns: some platforms take any `SystemExit` for a failure
    """
    from amadou_runtime.command.run_command import run_program  # importing typer is slow

    run_program(job, argv)
