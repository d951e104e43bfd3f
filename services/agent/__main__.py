"""`python -m services.agent`."""

from services.agent.main import main

if __name__ == "__main__":
    main()
