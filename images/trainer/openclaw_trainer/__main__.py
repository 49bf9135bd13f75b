"""`python -m openclaw_trainer`."""

from openclaw_trainer.main import main

if __name__ == "__main__":
    main()
