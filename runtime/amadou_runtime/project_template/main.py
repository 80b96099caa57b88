"""The program for `amadou run main.py` and `spark-submit main.py`."""

from amadou_runtime import main

from project_name.job import job

if __name__ == "__main__":
    main(job)
