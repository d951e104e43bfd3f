"""`python -m services.gateway`."""

from services.gateway.main import main

if __name__ == "__main__":
    main()
