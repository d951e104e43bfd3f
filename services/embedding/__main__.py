"""`python -m services.embedding`."""

from services.embedding.main import main

if __name__ == "__main__":
    main()
