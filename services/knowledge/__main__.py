"""`python -m services.knowledge [migrate]`."""

from services.knowledge.main import main

if __name__ == "__main__":
    main()
